"""Figures of single scenes: rollouts of our method (the paper's figure 4), and one scene as every method saw it (its figures 14 to 16)."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from torch import Tensor

from infogaze.evaluation.imagined import ImaginedScenes
from infogaze.evaluation.showcase import Showcase
from infogaze.plots.rollout import rollout_figure
from infogaze.plots.scenes import outline, picture, pixels, seen, short, shown_looks
from infogaze.plots.style import INK, WIDTH, house_style, line_style, titled
from infogaze.report.drawing import Cell, Drawing, Drawn, Rows
from infogaze.report.gather import OURS, Chapter, Group
from infogaze.report.missing import left_out_note, measured_differently, not_measured, not_trained
from infogaze.report.words import looks_phrase, quoted

_SUCCESSES, _FAILURES = 3, 3
_RULE = (
    f"Picked by rule, not by hand: in the run of the lowest seed, the first {_SUCCESSES} test scenes that are correct after the last look "
    f"but not after the first, then the first {_FAILURES} that are wrong after the last."
)
_IMAGINED = (
    " The scene imagined is what is expected of each location, with what was seen in its place; the uncertainty is the entropy of what a "
    "location may hold."
)


def rollouts(chapter: Chapter) -> Drawn:
    """Scenes looked at by our method: successes, then failures."""
    group = next((group for group in chapter.with_measured(Showcase) if group.is_ours), None)
    if group is None:
        ours = [group.method for group in chapter.lookers if group.is_ours]
        return not_measured(Showcase, ours[0]) if ours else not_trained(OURS)
    run = group.runs[0]
    about, showcase = run.about, run.read(Showcase)
    imagined = run.read(ImaginedScenes) if run.has(ImaginedScenes) else None
    correct = showcase.probabilities[:, -1].argmax(-1) == showcase.labels
    first, *others = chosen(correct, int(showcase.common))
    note = (
        f"{_RULE} Seed {about.seed}, {about.num_samples} contents imagined of each location. The complete scene is for the reader; the "
        "model never sees it whole. Each gain map has its own scale; its maximum, among the locations not yet looked at, is written below "
        f"it.{'' if imagined is None else _IMAGINED}"
    )
    return (
        _rollout(chapter, group.name, showcase=showcase, imagined=imagined, index=first, note=note),
        *(
            _rollout(chapter, group.name, showcase=showcase, imagined=imagined, index=index, note="")
            for index in others
        ),
    )


def chosen(correct: Bool[Tensor, " s"], common: int) -> list[int]:
    """Which scenes of a showcase to show: of those after the common ones, the first few successes, then the first few failures."""
    picked = range(common, len(correct)) or range(len(correct))
    successes = [index for index in picked if bool(correct[index])]
    failures = [index for index in picked if not bool(correct[index])]
    return [*successes[:_SUCCESSES], *failures[:_FAILURES]]


def _rollout(
    chapter: Chapter, method: str, *, showcase: Showcase, imagined: ImaginedScenes | None, index: int, note: str
) -> Drawing:
    label, probabilities = int(showcase.labels[index]), showcase.probabilities[index]
    name = chapter.classes[label]
    course = _course(probabilities, label, chapter.classes)
    return Drawing(
        figure=rollout_figure(
            showcase.images[index],
            locations=showcase.locations[index],
            gains=showcase.gains[index],
            probabilities=probabilities,
            grid=chapter.grid,
            classes=chapter.classes,
            label=label,
            imagined=None if imagined is None else imagined.pictures[index],
            uncertainty=None if imagined is None else imagined.uncertainty[index],
        ),
        sentence=f"Test scene {int(showcase.scenes[index])}, {quoted(name)}: {method} {course}.",
        alt_text=f"a rollout on a scene of {name}: gain maps, glimpses so far and class probabilities look by look",
        note=note,
        numbers=_rollout_rows(chapter, showcase, index),
    )


def _course(probabilities: Float[Tensor, "T classes"], label: int, classes: Sequence[str]) -> str:
    """When the prediction for a scene was correct, in words."""
    predictions = probabilities.argmax(-1).tolist()
    probability = 100 * float(probabilities[-1, predictions[-1]])
    if predictions[-1] != label:
        before = "though it was correct before" if label in predictions else "and is never correct"
        return f"ends at {quoted(classes[predictions[-1]])} with {probability:.0f} %, {before}"
    since = max((look + 1 for look, prediction in enumerate(predictions) if prediction != label), default=0)
    when = f"from look t={since} on"
    if since in (0, len(predictions) - 1):
        when = "from the first look on" if since == 0 else "only at the last look"
    return f"is correct {when}, in the end with {probability:.0f} %"


def _rollout_rows(chapter: Chapter, showcase: Showcase, index: int) -> Rows:
    head = ("scene", "label", "look t", "row", "column", "expected gain, nats", "prediction", "probability, %")
    rows: list[tuple[Cell, ...]] = [head]
    scene, label = int(showcase.scenes[index]), chapter.classes[int(showcase.labels[index])]
    for look, where in enumerate(showcase.locations[index]):
        gain = float(showcase.gains[index, look].flatten()[chapter.grid.nearest(where)])
        best = int(showcase.probabilities[index, look].argmax())
        probability = 100 * float(showcase.probabilities[index, look, best])
        rows.append((scene, label, look, *where.tolist(), gain, chapter.classes[best], probability))
    return tuple(rows)


def one_scene(chapter: Chapter) -> Drawn:
    """The first common scene as every method saw it."""
    groups = tuple(group for group in chapter.with_measured(Showcase) if int(group.runs[0].read(Showcase).common) > 0)
    if not groups:
        return not_measured(Showcase)
    firsts = [group.only(group.runs[:1]) for group in groups]
    differ = measured_differently(firsts, lambda run: int(run.read(Showcase).scenes[0]), "the common scenes")
    if differ is not None:
        return differ
    shown = {group.name: group.runs[0].read(Showcase) for group in firsts}
    first = next(iter(shown.values()))
    label = int(first.labels[0])
    correct = [group.name for group in firsts if int(shown[group.name].probabilities[0, -1].argmax()) == label]
    course = _course(first.probabilities[0], label, chapter.classes)
    rows: list[tuple[Cell, ...]] = [
        ("method", "preset", "seed", "scene", "label", "look t", "row", "column", "prediction", "probability, %")
    ]
    for group in firsts:
        found = _rollout_rows(chapter, shown[group.name], 0)[1:]
        seed = group.runs[0].about.seed
        rows += [(*group.kind, seed, *row[:5], *row[6:]) for row in found]
    return (
        Drawing(
            figure=_scene_figure(chapter, firsts, shown),
            sentence=f"On test scene {int(first.scenes[0])}, {quoted(chapter.classes[label])}, {len(correct)} of {len(firsts)} methods are "
            f"correct after {looks_phrase(chapter.num_looks - 1)}; {firsts[0].name} {course}.",
            alt_text=f"one scene of {chapter.data} seen by {len(firsts)} methods, a row each: glimpses so far and predictions by look",
            note="The first of the scenes that all methods share, so not picked for its outcome; of each method the run of the lowest "
            f"seed. One scene proves nothing: it shows how the methods differ.{left_out_note(chapter.lookers, groups)}",
            numbers=tuple(rows),
        ),
    )


def _scene_figure(chapter: Chapter, groups: Sequence[Group], shown: dict[str, Showcase]) -> Figure:
    columns = shown_looks(chapter.num_looks)
    first = next(iter(shown.values()))
    label = int(first.labels[0])
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
            colour = line_style(group.method).colour
            if line == 0:
                picture(row[0], scene)
                row[0].set_title(short(chapter.classes[label]), fontsize=9)
                row[0].set_xlabel(group.name, color=colour, fontweight="bold")
            else:
                row[0].axis("off")
                row[0].text(
                    1.0, 0.5, group.name.replace(" (", "\n("), ha="right", va="center", color=colour,
                    transform=row[0].transAxes,
                )  # fmt: skip
            for look, axes in zip(columns, row[1:], strict=True):
                picture(axes, seen(scene, showcase.locations[0, : look + 1], chapter.grid))
                outline(axes, showcase.locations[0, look], chapter.grid, colour=colour)
                best = int(showcase.probabilities[0, look].argmax())
                mark = "✓" if best == label else "✗"
                axes.set_xlabel(f"{short(chapter.classes[best])} {mark}", fontsize=8, color=INK, labelpad=2)
                if line == 0:
                    axes.set_title(f"t = {look}", fontsize=9)
        titled(figure, f"{chapter.data}: one scene seen by every method", "")
        return figure
