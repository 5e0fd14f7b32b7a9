"""The figure of samples from q(z | h_t) by look for one scene, with flows and without (the paper's figure 8)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, UInt8
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from sklearn.manifold import TSNE
from torch import Tensor

from infogaze.evaluation.latents import Latents
from infogaze.evaluation.showcase import Showcase
from infogaze.plots.scenes import framed, outline, picture, pixels, seen, shown_looks
from infogaze.plots.style import QUIET, WIDTH, house_style, line_style, titled
from infogaze.report.drawing import Cell, Drawing, Drawn, Rows
from infogaze.report.gather import Chapter, Group, Run
from infogaze.report.missing import measured_differently, not_measured, not_trained

_PAIRS = (("gaussian", "paper"), ("gaussian-corrected", "paper-corrected"))
"""A method without flows, and the same with them."""
_KINDS = ("without flows", "with flows")


def by_latents(chapter: Chapter) -> Drawn:
    """t-SNE of the imagined z of one scene after each look, with flows and without, from the same glimpses."""
    measured = {(group.method, group.preset): group for group in chapter.with_measured(Latents)}
    found = [
        [measured[method, preset] for method in pair]
        for preset in chapter.presets
        for pair in _PAIRS
        if all((method, preset) in measured for method in pair)
    ]
    if not found:
        return _lacking(chapter)
    groups = [group.only(group.runs[:1]) for group in found[0]]
    differ = measured_differently(groups, _scene_and_looks, "the scene imagined or the looks at it")
    if differ is not None:
        return differ
    runs = {group.method: group.runs[0] for group in groups}
    kinds = dict(zip(runs, _KINDS, strict=True))
    first = groups[0].runs[0].read(Latents)
    projected = {method: [_projected(z) for z in run.read(Latents).z] for method, run in runs.items()}
    spreads = {method: _spread(run.read(Latents).z) for method, run in runs.items()}
    scene = int(first.scene)
    image = _image(runs, scene)
    glimpses = "" if image is None else "; those so far are drawn on top"
    changes = " and ".join(
        f"{float(spreads[method][0]):.2f} to {float(spreads[method][-1]):.2f} {kinds[method]}"
        for method in reversed(runs)
    )
    head = ("spread of z", *(f"t = {look}" for look in range(len(first.z))))
    table = [(kinds[method], *(f"{float(value):.3f}" for value in values)) for method, values in spreads.items()]
    return (
        Drawing(
            figure=_figure(chapter, runs, projected, image=image),
            sentence=f"On test scene {scene}, from the first to the last look the spread of what is imagined (standard deviation of z, "
            f"mean over its dimensions) goes from {changes}.",
            alt_text=f"t-SNE of samples of z for one scene of {chapter.data}, a column a look, without flows above and with flows below",
            note="Each panel is a projection of its own. Several islands mean that several quite different scenes are held possible; "
            f"distances and axes of t-SNE mean nothing. Both took in the same glimpses, at random places{glimpses}. Fixed seed.",
            numbers=_rows(groups, projected, scene),
            table=(head, *table),
        ),
    )


def _lacking(chapter: Chapter) -> Drawn:
    """What would give the pair of which most is there."""
    trained = {group.method for group in chapter.lookers}
    pair = max(_PAIRS, key=lambda names: len(trained & {*names}))
    lacking = [method for method in pair if method not in trained]
    return not_trained(*lacking) if lacking else not_measured(Latents, *pair)


def _scene_and_looks(run: Run) -> object:
    latents = run.read(Latents)
    return int(latents.scene), latents.locations.tolist()


def _projected(z: Float[Tensor, "samples d"]) -> Float[np.ndarray, "samples 2"]:
    """The samples in two dimensions."""
    perplexity = min(30.0, (len(z) - 1) / 3)
    projection: np.ndarray = TSNE(perplexity=perplexity, init="pca", max_iter=500, random_state=0).fit_transform(
        z.numpy()
    )
    return projection


def _spread(z: Float[Tensor, "T samples d"]) -> Float[Tensor, " T"]:
    return z.double().std(1).mean(-1)


def _rows(groups: Sequence[Group], projected: dict[str, list[np.ndarray]], scene: int) -> Rows:
    rows: list[tuple[Cell, ...]] = [("method", "seed", "scene", "look t", "sample", "t-SNE 1", "t-SNE 2")]
    for group in groups:
        method, seed = group.kind[0], group.runs[0].about.seed
        for look, points in enumerate(projected[group.method]):
            rows += [(method, seed, scene, look, index, float(x), float(y)) for index, (x, y) in enumerate(points)]
    return tuple(rows)


def _figure(
    chapter: Chapter,
    runs: dict[str, Run],
    projected: dict[str, list[np.ndarray]],
    *,
    image: UInt8[Tensor, "C H W"] | None,
) -> Figure:
    latents = next(iter(runs.values())).read(Latents)
    columns = shown_looks(chapter.num_looks)
    cell = (WIDTH - 0.2) / (len(columns) + 1)
    head = 0 if image is None else 1
    with house_style():
        figure = Figure(
            figsize=(WIDTH, cell * (head + len(runs)) + 0.9),
            layout=ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.045, wspace=0.02, hspace=0.0),
        )
        cells = figure.subplots(head + len(runs), len(columns) + 1, squeeze=False)
        if image is not None:
            first, *rest = cells[0]
            picture(first, pixels(image))
            first.set_title("scene", fontsize=9)
            for look, axes in zip(columns, rest, strict=True):
                picture(axes, seen(pixels(image), latents.locations[: look + 1], chapter.grid))
                outline(axes, latents.locations[look], chapter.grid, colour=QUIET)
        for (first, *rest), (method, kind) in zip(cells[head:], zip(runs, _KINDS, strict=True), strict=True):
            colour = line_style(method).colour
            first.axis("off")
            name = method.replace("-", "-\n")
            first.text(1, 0.5, f"{name},\n{kind}", ha="right", va="center", color=colour, transform=first.transAxes)
            for look, axes in zip(columns, rest, strict=True):
                axes.scatter(*projected[method][look].T, s=5, color=colour, alpha=0.55, linewidths=0, rasterized=True)
                axes.margins(0.12)
                framed(axes)
        for look, axes in zip(columns, cells[0][1:], strict=True):
            axes.set_title(f"t = {look}", fontsize=9)
        seeds = ", ".join(f"{method} seed {run.about.seed}" for method, run in runs.items())
        samples = latents.z.shape[1]
        titled(figure, f"{chapter.data}: samples of q(z | h) by look, t-SNE", f"{samples} samples a look; {seeds}.")
        return figure


def _image(runs: dict[str, Run], scene: int) -> UInt8[Tensor, "C H W"] | None:
    """The scene's image, where one of the runs shows it."""
    for run in runs.values():
        if run.has(Showcase):
            showcase = run.read(Showcase)
            found = torch.nonzero(showcase.scenes == scene).flatten()
            if len(found):
                return showcase.images[int(found[0])]
    return None
