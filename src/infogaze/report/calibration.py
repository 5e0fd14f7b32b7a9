"""The figure of calibration: whether stated probabilities come true, at the last look and look by look."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from torch import Tensor

from infogaze.evaluation.accuracy import mean_over_runs
from infogaze.plots.style import QUIET, WIDTH, hand, house_style, titled
from infogaze.report.curves import Curve, Panel, behind, looks, mean_over_scenes
from infogaze.report.drawing import Drawing, Drawn, Rows
from infogaze.report.gather import BASELINES, OURS, Chapter, Group, Run
from infogaze.report.missing import not_trained
from infogaze.report.panels import draw, keys
from infogaze.report.tables import numbers, table
from infogaze.report.words import looks_said

_LEAST = 0.005  # of the scenes; the accuracy of a fuller bin than this is shown


def by_calibration(chapter: Chapter) -> Drawn:
    """Reliability diagram at the last look, expected calibration error and negative log-likelihood by look."""
    groups = chapter.lookers
    if not groups:
        return not_trained(OURS)
    at = looks(chapter.looks)
    error = Panel(
        "expected calibration error, %",
        "look t",
        tuple(
            Curve(group, at, mean_over_runs([run.summary.calibration_error for run in group.runs])) for group in groups
        ),
        scale=100,
    )
    likelihood = Panel(
        "negative log-likelihood, nats",
        "look t",
        tuple(Curve(group, at, mean_over_scenes([run.summary.surprise for run in group.runs])) for group in groups),
    )
    panels = (error, likelihood)
    return (
        Drawing(
            _figure(chapter, groups, panels),
            _sentence(chapter, error.curves, likelihood.curves),
            f"reliability diagram at the last look, calibration error and negative log-likelihood by look on {chapter.data}",
            "Left: of all scenes whose most likely label was given about this probability, how many were named right; on the "
            "diagonal the probability is honest, below it too high. Scenes of all seeds together, bins with less than half a "
            "percent of them left out. Middle: the mean distance from the diagonal. Right: minus the log-probability of the true label.",
            (*numbers(panels), *_reliability_rows(groups)),
            table(panels),
        ),
    )


def _figure(chapter: Chapter, groups: Sequence[Group], panels: tuple[Panel, Panel]) -> Figure:
    with house_style():
        figure = Figure(figsize=(WIDTH + 0.6, 4.0), layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06, wspace=0.04))
        diagram, *rest = figure.subplots(1, 3)
        diagram.plot([0, 100], [0, 100], color=QUIET, linewidth=1.2, linestyle=":")
        for group in reversed(groups):
            drawn = hand(group.method)
            confidence, right, share = _pooled(group.runs)
            full = share >= _LEAST
            diagram.plot(
                100 * confidence[full], 100 * right[full], color=drawn.colour, marker=drawn.marker, linestyle=drawn.dash,
                linewidth=drawn.width, markersize=4, label=group.name,
            )  # fmt: skip
        diagram.set(
            xlabel=f"probability of the label named\nafter {looks_said(chapter.looks - 1)}, %", ylabel="named right, %",
            xlim=(0, 101), ylim=(0, 101),
        )  # fmt: skip
        for axes, panel in zip(rest, panels, strict=True):
            draw(axes, panel)
        figure.legend(handles=keys(panels), loc="outside right center", frameon=False, fontsize=8.5)
        single = any(len(group.runs) == 1 for group in groups)
        foot = behind(panels[1].curves) + (" With one seed the calibration error has no interval." if single else "")
        titled(figure, f"{chapter.data}: calibration", foot)
        return figure


def _pooled(runs: Sequence[Run]) -> tuple[Float[Tensor, " bins"], Float[Tensor, " bins"], Float[Tensor, " bins"]]:
    """Confidence, share named right and share of scenes in each bin, of all runs together."""
    parts = [run.summary.reliability for run in runs]
    shares = torch.stack([part.share for part in parts])
    confidence, right = (
        (shares * torch.stack(values).nan_to_num(0.0)).sum(0) / shares.sum(0)
        for values in ([part.confidence for part in parts], [part.accuracy for part in parts])
    )
    return confidence, right, shares.mean(0)


def _reliability_rows(groups: Sequence[Group]) -> Rows:
    """In the columns of the curves: where they have the look, the mean probability in %."""
    rows = []
    for group in groups:
        for confidence, right, share in zip(*(part.tolist() for part in _pooled(group.runs)), strict=True):
            if share > 0:
                measure = "named right, %, against the probability of the label named, %, at the last look"
                scenes = round(share * sum(len(run.summary.labels) for run in group.runs))
                rows.append((measure, *group.kind, 100 * confidence, 100 * right, "", "", scenes, ""))
    return tuple(rows)


def _sentence(chapter: Chapter, errors: tuple[Curve, ...], likelihoods: tuple[Curve, ...]) -> str:
    said = []
    last = looks_said(chapter.looks - 1)
    for error, likelihood in zip(errors, likelihoods, strict=True):
        group = error.group
        if group.method != OURS:
            continue
        confidence, right, share = (part.nan_to_num(0.0) for part in _pooled(group.runs))
        # The sign of the whole: whether it claims more or less than comes true.
        excess = 100 * float((share * (confidence - right)).sum())
        side = "more" if excess > 0 else "less"
        said.append(
            f"After {last} {group.name} claims {abs(excess):.1f} points {side} than comes true; its calibration error is "
            f"{100 * float(error.estimate.value[-1]):.1f} % and its negative log-likelihood {float(likelihood.estimate.value[-1]):.2f} nats"
        )
        rivals = [
            rival for rival in likelihoods if rival.group.method in BASELINES and rival.group.preset == group.preset
        ]
        if rivals:
            best = min(rivals, key=lambda rival: float(rival.estimate.value[-1]))
            said[-1] += f" (best baseline: {best.group.name}, {float(best.estimate.value[-1]):.2f})"
        said[-1] += "."
    return " ".join(said) or f"{OURS} is not among these runs; the curves are those of the other methods."
