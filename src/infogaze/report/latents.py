"""The figure of samples from q(z given h_t) by look for one scene, with flows and without (the paper's figure 8)."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from sklearn.manifold import TSNE
from torch import Tensor

from infogaze.evaluation.records import Latents, Showcase
from infogaze.plots.scenes import framed, outline, picture, pixels, seen, shown_looks
from infogaze.plots.style import WIDTH, hand, house_style, titled
from infogaze.report.drawing import Drawing, Drawn
from infogaze.report.gather import OURS, Chapter, Run
from infogaze.report.missing import not_measured, not_trained, unlike

_METHODS = {"gaussian": "without flows", OURS: "with flows"}


def by_latents(chapter: Chapter) -> Drawn:
    """t-SNE of the imagined z of one scene after each look."""
    measured = {(group.method, group.preset): group for group in chapter.with_measured(Latents)}
    presets = [preset for preset in chapter.presets if all((method, preset) in measured for method in _METHODS)]
    if not presets:
        trained = {group.method for group in chapter.lookers}
        lacking = [method for method in _METHODS if method not in trained]
        return not_trained(*lacking) if lacking else not_measured(Latents, *_METHODS)
    groups = [measured[method, presets[0]].only(measured[method, presets[0]].runs[:1]) for method in _METHODS]
    if (differ := unlike(groups, lambda run: int(run.read(Latents).scene), "the scene imagined")) is not None:
        return differ
    runs = {group.method: group.runs[0] for group in groups}
    flat = {method: [_flattened(z) for z in run.read(Latents).z] for method, run in runs.items()}
    spreads = {method: _spread(run.read(Latents).z) for method, run in runs.items()}
    rows: list[tuple[str | int | float, ...]] = [("method", "seed", "scene", "look t", "sample", "t-SNE 1", "t-SNE 2")]
    scene = int(runs[OURS].read(Latents).scene)
    for method, points in flat.items():
        for look, values in enumerate(points):
            rows += [
                (method, runs[method].about.seed, scene, look, index, float(x), float(y))
                for index, (x, y) in enumerate(values)
            ]
    said = " and ".join(
        f"{float(spreads[method][0]):.2f} to {float(spreads[method][-1]):.2f} {_METHODS[method]}"
        for method in (OURS, "gaussian")
    )
    return (
        Drawing(
            _figure(chapter, runs, flat, scene),
            f"On test scene {scene}, from the first to the last look the spread of what is imagined (standard deviation of z, mean "
            f"over its dimensions) goes from {said}.",
            f"t-SNE of samples of z for one scene of {chapter.data}, a column a look, without flows above and with flows below",
            "Each panel is a projection of its own: several islands mean that several quite different scenes are held possible; "
            "distances and axes of t-SNE mean nothing. Above each row are the glimpses so far, which differ as each model looks "
            "where it wants. Fixed seed.",
            tuple(rows),
            (
                ("spread of z", *(f"t = {look}" for look in range(len(spreads[OURS])))),
                *(
                    (_METHODS[method], *(f"{float(value):.3f}" for value in values))
                    for method, values in spreads.items()
                ),
            ),
        ),
    )


def _flattened(z: Float[Tensor, "samples d"]) -> np.ndarray:
    """The samples in two dimensions."""
    perplexity = min(30.0, (len(z) - 1) / 3)
    projection: np.ndarray = TSNE(perplexity=perplexity, init="pca", max_iter=500, random_state=0).fit_transform(
        z.numpy()
    )
    return projection


def _spread(z: Float[Tensor, "T samples d"]) -> Float[Tensor, " T"]:
    return z.double().std(1).mean(-1)


def _figure(chapter: Chapter, runs: dict[str, Run], flat: dict[str, list[np.ndarray]], scene: int) -> Figure:
    image = _image(runs, scene)
    columns = shown_looks(chapter.looks)
    cell = (WIDTH - 0.2) / (len(columns) + 1)
    lines = 2 if image is not None else 1
    with house_style():
        figure = Figure(
            figsize=(WIDTH, cell * lines * len(runs) + 0.9),
            layout=ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.045, wspace=0.02, hspace=0.0),
        )
        cells = figure.subplots(lines * len(runs), len(columns) + 1, squeeze=False)
        for part, (method, run) in enumerate(runs.items()):
            drawn = hand(method)
            *glimpses, points = cells[lines * part : lines * (part + 1)]
            for line in glimpses:
                assert image is not None
                _glimpses(line, image, run, scene, columns, chapter, drawn.colour, first=part == 0)
            points[0].axis("off")
            points[0].text(1, 0.5, f"{method},\n{_METHODS[method]}", ha="right", va="center", color=drawn.colour,
                           transform=points[0].transAxes)  # fmt: skip
            for look, axes in zip(columns, points[1:], strict=True):
                axes.scatter(*flat[method][look].T, s=5, color=drawn.colour, alpha=0.55, linewidths=0, rasterized=True)
                axes.margins(0.12)
                framed(axes)
        for look, axes in zip(columns, cells[0][1:], strict=True):
            axes.set_title(f"t = {look}", fontsize=9)
        samples = len(flat[OURS][0])
        seeds = ", ".join(f"{method} seed {run.about.seed}" for method, run in runs.items())
        titled(figure, f"{chapter.data}: samples of q(z | h) by look, t-SNE", f"{samples} samples a look; {seeds}.")
        return figure


def _glimpses(
    line: np.ndarray,
    image: Tensor,
    run: Run,
    scene: int,
    columns: list[int],
    chapter: Chapter,
    colour: str,
    *,
    first: bool,
) -> None:
    whole = pixels(image)
    locations = run.summary.locations[scene]
    if first:
        picture(line[0], whole)
        line[0].set_title("scene", fontsize=9)
    else:
        line[0].axis("off")
    axes: Axes
    for look, axes in zip(columns, line[1:], strict=True):
        picture(axes, seen(whole, locations[: look + 1], chapter.grid))
        outline(axes, locations[look], chapter.grid, colour)


def _image(runs: dict[str, Run], scene: int) -> Tensor | None:
    """The scene's image, where one of the runs shows it."""
    for run in runs.values():
        if run.has(Showcase):
            showcase = run.read(Showcase)
            places = torch.nonzero(showcase.scenes == scene).flatten()
            if len(places):
                return showcase.images[int(places[0])]
    return None
