"""The figure of gain calibration: the gain that was expected of a look against the realised gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from torch import Tensor

from infogaze.evaluation.estimates import Estimate, mean_over_runs
from infogaze.evaluation.gain_calibration import Bins, binned, rank_correlation, realised_gain
from infogaze.evaluation.sample_counts import SampleCounts
from infogaze.plots.style import QUIET, WIDTH, house_style, line_style, titled
from infogaze.report.curves import Curve, Panel, interval_note
from infogaze.report.drawing import Cell, Drawing, Drawn, Missing, Rows
from infogaze.report.gather import OURS, Chapter, Group, Run, once
from infogaze.report.missing import measured_differently, not_trained
from infogaze.report.panels import draw
from infogaze.report.tables import numbers


@dataclass(frozen=True, kw_only=True)
class _Calibration:
    """How expected and realised gain of one method compare."""

    group: Group
    bins: Bins
    expected: float
    """Mean of all looks but the first, in nats."""
    realised: float
    """The same of the realised gain."""
    correlation: Estimate
    """Spearman's, one number."""


def by_gain_calibration(chapter: Chapter) -> Drawn:
    """Expected against realised gain in bins, and their rank correlation by P."""
    measured = [_measure(group) for group in chapter.lookers if _expects(group)]
    if not measured:
        return Missing("no run has maps of the gain it expects of a look", not_trained(OURS).remedy)
    sampled = chapter.with_measured(SampleCounts)
    if measured_differently(sampled, once(_tried), "the numbers P tried") is not None:
        sampled = ()
    by_count = Panel(
        measure="rank correlation",
        against="imagined scenes P",
        curves=tuple(_curve_by_count(group) for group in sampled),
        title="by number of imagined scenes",
        log_x=True,
    )
    rows = _rows(measured)
    lacking = "" if by_count.curves else " The rank correlation by P needs `infogaze evaluate` to try several P."
    return (
        Drawing(
            figure=_figure(chapter, measured, by_count),
            sentence=" ".join(_sentence(found) for found in measured if found.group.is_ours) or _sentence(measured[0]),
            alt_text=f"realised against expected gain on {chapter.data}, in ten bins for each of {len(measured)} methods",
            note="Each point is a tenth of all looks but the first, of all seeds together, ordered by their expected gain; "
            f"its bar is the 95 % interval of the mean {_unit_phrase(measured)}. On the dotted line gains are calibrated: on average a "
            "look gains what was expected. The realised gain is KL[p(y | h_t) || p(y | h_t-1)], whose mean over outcomes is the expected "
            "gain. A gain correction and a value head are trained to expect how much a look lowers the loss; that has the same mean "
            f"where the class probabilities are calibrated (see calibration).{lacking}",
            numbers=(*rows, *numbers((by_count,))) if by_count.curves else rows,
            table=_table(measured, by_count.curves),
        ),
    )


def _expects(group: Group) -> bool:
    """Whether its maps are gains it expects, in nats: a policy without maps has none, and the oracle knows instead."""
    return all(run.about.deployable and bool(run.summary.expected[:, 1:].any()) for run in group.runs)


def _unit_phrase(measured: Sequence[_Calibration]) -> str:
    """What the bars are over, in words."""
    units = {calibration.bins.unit for calibration in measured}
    scenes = "over scenes, the looks of one together"
    if units == {"seeds"}:
        return "over seeds"
    return scenes if units == {"scenes"} else f"over seeds, with one seed {scenes}"


def _measure(group: Group) -> _Calibration:
    # All looks but the first, which nothing chose.
    expected = torch.stack([run.summary.expected[:, 1:] for run in group.runs])  # [R, N, T - 1]
    realised = torch.stack([run.summary.realised[:, 1:] for run in group.runs])
    correlations = [
        torch.tensor(rank_correlation(*pair), dtype=torch.float64)
        for pair in zip(expected.flatten(1), realised.flatten(1), strict=True)
    ]
    return _Calibration(
        group=group,
        bins=binned(expected, realised),
        expected=float(expected.double().mean()),
        realised=float(realised.double().mean()),
        correlation=mean_over_runs(correlations),
    )


def _curve_by_count(group: Group) -> Curve:
    estimate = mean_over_runs([_correlations(run) for run in group.runs])
    return Curve(group=group, x=_tried(group.runs[0]), estimate=estimate)


def _tried(run: Run) -> tuple[float, ...]:
    return tuple(float(count) for count in run.read(SampleCounts).num_samples)


def _correlations(run: Run) -> Float[Tensor, " S"]:
    """The rank correlation for each P."""
    sampled = run.read(SampleCounts)
    return torch.tensor(
        [
            rank_correlation(expected[:, 1:].flatten(), realised_gain(log_probabilities)[:, 1:].flatten())
            for expected, log_probabilities in zip(sampled.expected, sampled.log_probabilities, strict=True)
        ],
        dtype=torch.float64,
    )


def _figure(chapter: Chapter, measured: Sequence[_Calibration], by_count: Panel) -> Figure:
    several = bool(by_count.curves)
    with house_style():
        figure = Figure(
            figsize=(WIDTH if several else 6.6, 4.0), layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06)
        )
        cells = figure.subplots(1, 2 if several else 1, squeeze=False)[0]
        _draw_bins(cells[0], measured)
        if several:
            draw(cells[1], by_count)
            # From none to perfect, so that a small change looks small.
            cells[1].set_ylim(min(0.0, cells[1].get_ylim()[0]), 1.0)
        foot = f"Bars: 95 % interval of the mean {_unit_phrase(measured)}. Rank correlation (Spearman): " + "; ".join(
            f"{calibration.group.name} {_correlation_phrase(calibration.correlation)}" for calibration in measured
        )
        if several:
            foot += f". By number of imagined scenes: {interval_note(by_count.curves)}"
        titled(figure, f"{chapter.data}: expected against realised gain", foot.rstrip(".") + ".")
        return figure


def _draw_bins(axes: Axes, measured: Sequence[_Calibration]) -> None:
    far = 1.05 * max(float(calibration.bins.expected.max()) for calibration in measured)
    top = 1.05 * max(float(calibration.bins.high.max()) for calibration in measured)
    axes.plot([0, min(far, top)], [0, min(far, top)], color=QUIET, linewidth=1.2, linestyle=":")
    for calibration in reversed(measured):
        bins, style = calibration.bins, line_style(calibration.group.method)
        axes.errorbar(
            bins.expected, bins.realised, (bins.realised - bins.low, bins.high - bins.realised), color=style.colour,
            marker=style.marker, markersize=4.5, linestyle=style.dash, linewidth=style.width, elinewidth=1.0,
            label=calibration.group.name,
        )  # fmt: skip
    axes.set(xlabel="expected gain, nats", ylabel="realised gain, nats", xlim=(0, far), ylim=(0, top))
    axes.set_title("all looks but the first", fontsize=9, loc="left")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="upper left", frameon=False, fontsize=8.5)


def _correlation_phrase(estimate: Estimate) -> str:
    value, low, high = (float(part) for part in (estimate.value, estimate.low, estimate.high))
    if estimate.n == 1:
        return f"{value:.2f} (1 seed)"
    return f"{value:.2f} (95 % interval {low:.2f} to {high:.2f}, {estimate.n} seeds)"


def _sentence(calibration: _Calibration) -> str:
    expected, realised = calibration.expected, calibration.realised
    ratio = realised / expected if expected else 0.0
    compared = "about as much as" if 0.9 <= ratio <= 1.1 else ("more than" if ratio > 1 else "less than")
    return (
        f"A look of {calibration.group.name} has a realised gain of {realised:.2f} nats on average, {compared} the {expected:.2f} nats "
        f"expected; the rank correlation between the two is {_correlation_phrase(calibration.correlation)}."
    )


def _rows(measured: Sequence[_Calibration]) -> Rows:
    head = ("measure", "method", "preset", "expected gain, nats", "value", "low", "high", "n", "interval over")
    rows: list[tuple[Cell, ...]] = [head]
    for calibration in measured:
        bins, group = calibration.bins, calibration.group
        for values in zip(
            *(part.tolist() for part in (bins.expected, bins.realised, bins.low, bins.high, bins.n)), strict=True
        ):
            rows.append(("realised gain, nats", *group.kind, *values, bins.unit))
        estimate = calibration.correlation
        value, low, high = (float(part) for part in (estimate.value, estimate.low, estimate.high))
        rows.append(("rank correlation, all looks", *group.kind, "", value, low, high, estimate.n, "seeds"))
    return tuple(rows)


def _table(measured: Sequence[_Calibration], by_count: Sequence[Curve]) -> Rows:
    most = max(len(calibration.bins.n) for calibration in measured)
    head = ("expected -> realised, nats", *(f"tenth {index + 1}" for index in range(most)), "rank correlation")
    rows: list[tuple[Cell, ...]] = [head]
    for calibration in measured:
        pairs = zip(calibration.bins.expected.tolist(), calibration.bins.realised.tolist(), strict=True)
        cells = [f"{expected:.2f} -> {realised:.2f}" for expected, realised in pairs]
        padding = [""] * (most - len(cells))
        rows.append((calibration.group.name, *cells, *padding, _correlation_phrase(calibration.correlation)))
    for curve in by_count:
        pairs = zip(curve.x, curve.estimate.value.tolist(), strict=True)
        correlations = ", ".join(f"P={count:g}: {value:.2f}" for count, value in pairs)
        rows.append((f"{curve.group.name}, by P", *[""] * most, correlations))
    return tuple(rows)
