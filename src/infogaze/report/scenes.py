"""Figures of single scenes: rollouts of our method (the paper's figure 4), and one scene as every method saw it (its figures 14 to 16)."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Bool
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from torch import Tensor

from infogaze.evaluation.records import Showcase
from infogaze.plots.rollout import rollout_figure
from infogaze.plots.scenes import outline, picture, pixels, seen, short, shown_looks
from infogaze.plots.style import INK, WIDTH, hand, house_style, titled
from infogaze.report.drawing import Drawing, Drawn, Rows
from infogaze.report.gather import OURS, Chapter, Group
from infogaze.report.missing import not_measured, not_trained, unlike, without
from infogaze.report.words import looks_said, quoted

_RIGHT, _WRONG = 3, 3
RULE = (
    f"Picked by rule, not by hand: in the run of the lowest seed, the first {_RIGHT} test scenes that were named right after the last look "
    f"but not after the first, then the first {_WRONG} that were named wrong after the last."
)


def rollouts(chapter: Chapter) -> Drawn:
    """Scenes looked at by our method: successes, then failures."""
    group = next((group for group in chapter.with_measured(Showcase) if group.method == OURS), None)
    if group is None:
        return not_measured(Showcase, OURS) if OURS in {g.method for g in chapter.lookers} else not_trained(OURS)
    run = group.runs[0]
    showcase = run.read(Showcase)
    right = showcase.probabilities[:, -1].argmax(-1) == showcase.labels
    rule = (
        f"{RULE} Seed {run.about.seed}, P = {run.about.samples}. The complete scene stands there for the reader alone."
    )
    return tuple(
        _rollout(chapter, group.name, showcase, index, rule if place == 0 else "")
        for place, index in enumerate(chosen(right, int(showcase.common)))
    )


def chosen(right: Bool[Tensor, " s"], common: int) -> list[int]:
    """Which scenes of a showcase to show: of those after the common ones, the first few successes, then the first few failures."""
    picked = range(common, len(right)) or range(len(right))
    good, bad = ([index for index in picked if bool(right[index]) is wanted] for wanted in (True, False))
    return [*good[:_RIGHT], *bad[:_WRONG]]


def _rollout(chapter: Chapter, name: str, showcase: Showcase, index: int, note: str) -> Drawing:
    label, probabilities = int(showcase.labels[index]), showcase.probabilities[index]
    scene = int(showcase.scenes[index])
    figure = rollout_figure(
        showcase.images[index],
        showcase.locations[index],
        showcase.gains[index],
        probabilities,
        chapter.grid,
        chapter.classes,
        label,
    )
    sentence = f"Test scene {scene}, {quoted(chapter.classes[label])}: {name} {_course(probabilities, label, chapter.classes)}."
    return Drawing(
        figure,
        sentence,
        f"a rollout on a scene of {chapter.classes[label]}: gain maps, glimpses so far and class probabilities look by look",
        note,
        _rollout_rows(chapter, showcase, index),
        (),
    )


def _course(probabilities: Tensor, label: int, classes: Sequence[str]) -> str:
    """How the naming of a scene went, in words."""
    named = probabilities.argmax(-1).tolist()
    if named[-1] != label:
        share = 100 * float(probabilities[-1, named[-1]])
        before = "though it had it right before" if label in named else "and never has it right"
        return f"ends at {quoted(classes[named[-1]])} with {share:.0f} %, {before}"
    since = max((look + 1 for look, name in enumerate(named) if name != label), default=0)
    share = 100 * float(probabilities[-1, label])
    when = f"from look t={since} on"
    if since in (0, len(named) - 1):
        when = "from the first look on" if since == 0 else "only at the last look"
    return f"names it right {when}, in the end with {share:.0f} %"


def _rollout_rows(chapter: Chapter, showcase: Showcase, index: int) -> Rows:
    head = ("scene", "label", "look t", "row", "column", "gain expected here, nats", "named", "probability, %")
    rows: list[tuple[str | int | float, ...]] = [head]
    for look in range(showcase.locations.shape[1]):
        where = showcase.locations[index, look]
        gain = float(showcase.gains[index, look].flatten()[chapter.grid.nearest(where)])
        best = int(showcase.probabilities[index, look].argmax())
        rows.append(
            (
                int(showcase.scenes[index]), chapter.classes[int(showcase.labels[index])], look, *where.tolist(), gain,
                chapter.classes[best],
                100 * float(showcase.probabilities[index, look, best]),
            )
        )  # fmt: skip
    return tuple(rows)


def one_scene(chapter: Chapter) -> Drawn:
    """The first common scene as every method saw it."""
    groups = tuple(group for group in chapter.with_measured(Showcase) if int(group.runs[0].read(Showcase).common) > 0)
    if not groups:
        return not_measured(Showcase)
    firsts = [group.only(group.runs[:1]) for group in groups]
    if (differ := unlike(firsts, lambda run: int(run.read(Showcase).scenes[0]), "the common scenes")) is not None:
        return differ
    shown = {group.name: group.runs[0].read(Showcase) for group in firsts}
    first = next(iter(shown.values()))
    label = int(first.labels[0])
    right = [group.name for group in firsts if int(shown[group.name].probabilities[0, -1].argmax()) == label]
    course = _course(shown[firsts[0].name].probabilities[0], label, chapter.classes)
    rows: list[tuple[str | int | float, ...]] = [
        ("method", "preset", "seed", "scene", "label", "look t", "row", "column", "named", "probability, %")
    ]
    for group in firsts:
        found = _rollout_rows(chapter, shown[group.name], 0)[1:]
        seed = group.runs[0].about.seed
        rows += [(*group.kind, seed, *row[:5], *row[6:]) for row in found]
    return (
        Drawing(
            _scene_figure(chapter, firsts, shown),
            f"On test scene {int(first.scenes[0])}, {quoted(chapter.classes[label])}, {len(right)} of {len(firsts)} methods are right "
            f"after {looks_said(chapter.looks - 1)}; {firsts[0].name} {course}.",
            f"one scene of {chapter.data} seen by {len(firsts)} methods, a row each: glimpses so far and the label named after each look",
            "The first of the scenes that all methods share, so not picked for what happened in it; of each method the run of the "
            "lowest seed. One scene proves nothing: it shows how the methods differ."
            + without(chapter.lookers, groups),
            tuple(rows),
            (),
        ),
    )


def _scene_figure(chapter: Chapter, groups: Sequence[Group], shown: dict[str, Showcase]) -> Figure:
    columns = shown_looks(chapter.looks)
    first = next(iter(shown.values()))
    scene = pixels(first.images[0])
    cell = (WIDTH - 0.3) / (len(columns) + 1)
    with house_style():
        figure = Figure(
            figsize=(WIDTH, (cell + 0.22) * len(groups) + 0.8),
            layout=ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.045, wspace=0.02, hspace=0.0),
        )
        cells = figure.subplots(len(groups), len(columns) + 1, squeeze=False)
        for line, (row, group) in enumerate(zip(cells, groups, strict=True)):
            showcase = shown[group.name]
            drawn = hand(group.method)
            if line == 0:
                picture(row[0], scene)
                row[0].set_title(short(chapter.classes[int(first.labels[0])]), fontsize=9)
                row[0].set_xlabel(group.name, color=drawn.colour, fontweight="bold")
            else:
                row[0].axis("off")
                row[0].text(
                    1.0, 0.5, group.name.replace(" (", "\n("), ha="right", va="center", color=drawn.colour,
                    transform=row[0].transAxes,
                )  # fmt: skip
            for look, axes in zip(columns, row[1:], strict=True):
                picture(axes, seen(scene, showcase.locations[0, : look + 1], chapter.grid))
                outline(axes, showcase.locations[0, look], chapter.grid, drawn.colour)
                _name(axes, showcase.probabilities[0, look], int(showcase.labels[0]), chapter.classes)
                if line == 0:
                    axes.set_title(f"t = {look}", fontsize=9)
        titled(figure, f"{chapter.data}: one scene seen by every method", "")
        return figure


def _name(axes: Axes, probabilities: Tensor, label: int, classes: Sequence[str]) -> None:
    best = int(probabilities.argmax())
    mark = "✓" if best == label else "✗"
    axes.set_xlabel(f"{short(classes[best])} {mark}", fontsize=8, color=INK, labelpad=2)
