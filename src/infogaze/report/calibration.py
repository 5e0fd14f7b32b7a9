"""The figure of calibration: whether stated probabilities come true, at the last look and look by look."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from torch import Tensor

from infogaze.evaluation.calibration import Reliability
from infogaze.evaluation.estimates import mean_over_runs
from infogaze.plots.style import QUIET, WIDTH, house_style, line_style, titled
from infogaze.report.curves import Curve, Panel, baselines_of, interval_note, look_numbers, mean_over_scenes
from infogaze.report.drawing import Drawing, Drawn, Rows
from infogaze.report.gather import OURS, Chapter, Group, Run
from infogaze.report.missing import not_trained
from infogaze.report.panels import draw, legend_handles
from infogaze.report.tables import numbers, table
from infogaze.report.words import OURS_MISSING, looks_phrase

_LEAST = 0.005  # of the scenes; the accuracy of fewer in a bin means little


def by_calibration(chapter: Chapter) -> Drawn:
    """Reliability diagram at the last look, expected calibration error and negative log-likelihood by look."""
    groups = chapter.lookers
    if not groups:
        return not_trained(OURS)
    looks = look_numbers(chapter.num_looks)
    error = Panel(
        measure="expected calibration error, %",
        against="look t",
        curves=tuple(
            Curve(group=group, x=looks, estimate=mean_over_runs([run.summary.calibration_error for run in group.runs]))
            for group in groups
        ),
        scale=100,
    )
    likelihood = Panel(
        measure="negative log-likelihood, nats",
        against="look t",
        curves=tuple(
            Curve(group=group, x=looks, estimate=mean_over_scenes([run.summary.surprise for run in group.runs]))
            for group in groups
        ),
    )
    panels = (error, likelihood)
    return (
        Drawing(
            figure=_figure(chapter, groups, panels),
            sentence=_sentence(chapter, error.curves, likelihood.curves),
            alt_text=f"reliability diagram at the last look, calibration error and negative log-likelihood by look on {chapter.data}",
            note="Left: accuracy on the scenes whose prediction has about this confidence, that is probability. On the diagonal a model is "
            "calibrated, below it overconfident. Scenes of all seeds together; bins with less than half a percent of them are left "
            "out. Middle: the mean distance from the diagonal. Right: minus the log-probability of the true label.",
            numbers=(*numbers(panels), *_reliability_rows(groups)),
            table=table(panels),
        ),
    )


def _figure(chapter: Chapter, groups: Sequence[Group], panels: tuple[Panel, Panel]) -> Figure:
    with house_style():
        figure = Figure(figsize=(WIDTH + 0.6, 4.0), layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06, wspace=0.04))
        diagram, *rest = figure.subplots(1, 3)
        diagram.plot([0, 100], [0, 100], color=QUIET, linewidth=1.2, linestyle=":")
        for group in reversed(groups):
            style = line_style(group.method)
            pooled = _pooled(group.runs)
            full = pooled.share >= _LEAST
            diagram.plot(
                100 * pooled.confidence[full], 100 * pooled.accuracy[full], color=style.colour, marker=style.marker,
                linestyle=style.dash, linewidth=style.width, markersize=4, label=group.name,
            )  # fmt: skip
        last = looks_phrase(chapter.num_looks - 1)
        diagram.set(xlabel=f"confidence\nafter {last}, %", ylabel="accuracy, %", xlim=(0, 101), ylim=(0, 101))
        for axes, panel in zip(rest, panels, strict=True):
            draw(axes, panel)
        figure.legend(handles=legend_handles(panels), loc="outside right center", frameon=False, fontsize=8.5)
        single = any(len(group.runs) == 1 for group in groups)
        note = " With one seed the calibration error has no interval." if single else ""
        titled(figure, f"{chapter.data}: calibration", interval_note(panels[1].curves) + note)
        return figure


def _pooled(runs: Sequence[Run]) -> Reliability:
    """The reliability diagram of all runs together."""
    parts = [run.summary.reliability for run in runs]
    shares = torch.stack([part.share for part in parts])  # [runs, bins]

    def mean(values: list[Float[Tensor, " bins"]]) -> Float[Tensor, " bins"]:
        return (shares * torch.stack(values).nan_to_num(0.0)).sum(0) / shares.sum(0)

    return Reliability(
        mean([part.confidence for part in parts]), mean([part.accuracy for part in parts]), shares.mean(0)
    )


def _reliability_rows(groups: Sequence[Group]) -> Rows:
    """In the columns of the curves: where they have the look, the confidence in %."""
    measure = "accuracy, %, against confidence, %, at the last look"
    rows = []
    for group in groups:
        pooled = _pooled(group.runs)
        total = sum(len(run.summary.labels) for run in group.runs)
        for confidence, accuracy, share in zip(
            pooled.confidence.tolist(), pooled.accuracy.tolist(), pooled.share.tolist(), strict=True
        ):
            if share > 0:
                rows.append((measure, *group.kind, 100 * confidence, 100 * accuracy, "", "", round(share * total), ""))
    return tuple(rows)


def _sentence(chapter: Chapter, errors: tuple[Curve, ...], likelihoods: tuple[Curve, ...]) -> str:
    sentences = []
    last = looks_phrase(chapter.num_looks - 1)
    for error, likelihood in zip(errors, likelihoods, strict=True):
        group = error.group
        if not group.is_ours:
            continue
        pooled = _pooled(group.runs)
        excess = 100 * float((pooled.share * (pooled.confidence - pooled.accuracy).nan_to_num(0.0)).sum())
        side = "overconfident" if excess > 0 else "underconfident"
        baselines = baselines_of(group, likelihoods)
        best = min(baselines, key=lambda baseline: float(baseline.estimate.value[-1])) if baselines else None
        compared = f" (best baseline: {best.group.name}, {float(best.estimate.value[-1]):.2f})" if best else ""
        sentences.append(
            f"After {last} {group.name} is {side} by {abs(excess):.1f} points; its calibration error is "
            f"{100 * float(error.estimate.value[-1]):.1f} % and its negative log-likelihood "
            f"{float(likelihood.estimate.value[-1]):.2f} nats{compared}."
        )
    return " ".join(sentences) or OURS_MISSING
