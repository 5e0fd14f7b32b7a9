"""The figure that asks whether the gain is honest: what was expected of a look against what then happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from torch import Tensor

from infogaze.evaluation.accuracy import Estimate, mean_over_runs
from infogaze.evaluation.gain_calibration import Bins, binned, happened, rank_correlation
from infogaze.evaluation.records import Samples
from infogaze.plots.style import QUIET, WIDTH, hand, house_style, titled
from infogaze.report.curves import Curve, Panel, behind
from infogaze.report.drawing import Drawing, Drawn, Missing, Rows
from infogaze.report.gather import OURS, Chapter, Group, Run, once
from infogaze.report.missing import not_trained, unlike
from infogaze.report.panels import draw
from infogaze.report.tables import numbers


@dataclass(frozen=True)
class _Honesty:
    group: Group
    bins: Bins
    expected: float
    """Mean of all looks but the first, in nats."""
    happened: float
    """The same of what then happened."""
    correlation: Estimate
    """Spearman's, one number."""


def by_honesty(chapter: Chapter) -> Drawn:
    """Expected against happened gain in bins, and their rank correlation by P."""
    measured = [_measure(group) for group in chapter.lookers if _expects(group)]
    if not measured:
        return Missing("no run has maps of what it expects of a look", not_trained(OURS).remedy)
    sampled = chapter.with_measured(Samples)
    if unlike(sampled, once(_tried), "the numbers P tried") is not None:
        sampled = ()
    by_samples = Panel(
        "rank correlation",
        "imagined scenes P",
        tuple(_by_samples(group) for group in sampled),
        title="by number of imagined scenes",
        log_x=True,
    )
    return (
        Drawing(
            _figure(chapter, measured, by_samples),
            " ".join(_sentence(honesty) for honesty in measured if honesty.group.method == OURS)
            or _sentence(measured[0]),
            f"the gain that happened against the gain expected on {chapter.data}, in ten bins for each of {len(measured)} methods",
            "Each point is a tenth of all looks but the first, of all seeds together, ordered by the gain the policy expected of them; "
            f"its bar is the 95 % interval of the mean {_over(measured)}. On the dotted line a look brings on average what was expected. "
            "What happened is KL[p(y given h_t) || p(y given h_t-1)], whose mean over outcomes is the expected gain. A policy with "
            "hindsight or a value head learned to expect how much a look lowers the loss, which has the same mean where stated "
            "probabilities come true (see calibration)."
            + ("" if by_samples.curves else " The rank correlation by P needs `infogaze evaluate` to try several P."),
            (*_rows(measured), *numbers((by_samples,))) if by_samples.curves else _rows(measured),
            _table(measured, by_samples.curves),
        ),
    )


def _expects(group: Group) -> bool:
    """Whether its maps say in nats what a look will bring: not those of a policy that has none, and the oracle knows instead."""
    return all(run.about.deployable and bool(run.summary.expected[:, 1:].any()) for run in group.runs)


def _over(measured: Sequence[_Honesty]) -> str:
    """What the bars are over, in words."""
    units = {honesty.bins.unit for honesty in measured}
    scenes = "over scenes, the looks of one together"
    if units == {"seeds"}:
        return "over seeds"
    return scenes if units == {"scenes"} else f"over seeds, with one seed {scenes}"


def _measure(group: Group) -> _Honesty:
    # All looks but the first, which nothing chose.
    wanted, came = (
        torch.stack([getattr(run.summary, side)[:, 1:] for run in group.runs]) for side in ("expected", "happened")
    )
    correlations = [
        torch.tensor(rank_correlation(*pair), dtype=torch.float64)
        for pair in zip(wanted.flatten(1), came.flatten(1), strict=True)
    ]
    means = float(wanted.double().mean()), float(came.double().mean())
    return _Honesty(group, binned(wanted, came), *means, mean_over_runs(correlations))


def _by_samples(group: Group) -> Curve:
    return Curve(group, _tried(group.runs[0]), mean_over_runs([_correlations(run) for run in group.runs]))


def _tried(run: Run) -> tuple[float, ...]:
    return tuple(float(p) for p in run.read(Samples).samples)


def _correlations(run: Run) -> Tensor:
    """The rank correlation for each P."""
    samples = run.read(Samples)
    return torch.tensor(
        [
            rank_correlation(expected[:, 1:].flatten(), happened(log_probabilities)[:, 1:].flatten())
            for expected, log_probabilities in zip(samples.expected, samples.log_probabilities, strict=True)
        ],
        dtype=torch.float64,
    )


def _figure(chapter: Chapter, measured: Sequence[_Honesty], by_samples: Panel) -> Figure:
    several = bool(by_samples.curves)
    with house_style():
        figure = Figure(
            figsize=(WIDTH if several else 6.6, 4.0), layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06)
        )
        cells = figure.subplots(1, 2 if several else 1, squeeze=False)[0]
        axes = cells[0]
        right = 1.05 * max(float(honesty.bins.expected.max()) for honesty in measured)
        top = 1.05 * max(float(honesty.bins.high.max()) for honesty in measured)
        axes.plot([0, min(right, top)], [0, min(right, top)], color=QUIET, linewidth=1.2, linestyle=":")
        for honesty in reversed(measured):
            bins, drawn = honesty.bins, hand(honesty.group.method)
            axes.errorbar(
                bins.expected, bins.happened, (bins.happened - bins.low, bins.high - bins.happened), color=drawn.colour,
                marker=drawn.marker, markersize=4.5, linestyle=drawn.dash, linewidth=drawn.width, elinewidth=1.0,
                label=honesty.group.name,
            )  # fmt: skip
        axes.set(
            xlabel="gain expected of the look, nats", ylabel="gain that happened, nats", xlim=(0, right), ylim=(0, top)
        )
        axes.set_title("all looks but the first", fontsize=9, loc="left")
        if several:
            draw(cells[1], by_samples)
            # From none to perfect, so that a small change looks small.
            cells[1].set_ylim(min(0.0, cells[1].get_ylim()[0]), 1.0)
        axes.legend(
            *(part[::-1] for part in axes.get_legend_handles_labels()), loc="upper left", frameon=False, fontsize=8.5
        )
        foot = f"Bars: 95 % interval of the mean {_over(measured)}. Rank correlation (Spearman): " + "; ".join(
            f"{honesty.group.name} {_correlation(honesty.correlation)}" for honesty in measured
        )
        if several:
            foot += f". By number of imagined scenes: {behind(by_samples.curves)}"
        titled(figure, f"{chapter.data}: is the expected gain honest?", foot.rstrip(".") + ".")
        return figure


def _correlation(estimate: Estimate) -> str:
    value, low, high = (float(part) for part in (estimate.value, estimate.low, estimate.high))
    if estimate.n == 1:
        return f"{value:.2f} (1 seed)"
    return f"{value:.2f} (95 % interval {low:.2f} to {high:.2f}, {estimate.n} seeds)"


def _sentence(honesty: _Honesty) -> str:
    wanted, came = honesty.expected, honesty.happened
    ratio = came / wanted if wanted else 0.0
    how = "about what" if 0.9 <= ratio <= 1.1 else ("more than" if ratio > 1 else "less than")
    return (
        f"A look of {honesty.group.name} brings {came:.2f} nats where {wanted:.2f} were expected, {how} it promised; the rank correlation "
        f"between the two is {_correlation(honesty.correlation)}."
    )


def _rows(measured: Sequence[_Honesty]) -> Rows:
    head = ("measure", "method", "preset", "gain expected, nats", "value", "low", "high", "n", "interval over")
    rows: list[tuple[str | int | float, ...]] = [head]
    for honesty in measured:
        bins, group = honesty.bins, honesty.group
        for values in zip(
            *(part.tolist() for part in (bins.expected, bins.happened, bins.low, bins.high, bins.n)), strict=True
        ):
            rows.append(("gain that happened, nats", *group.kind, *values, bins.unit))
        estimate = honesty.correlation
        numbers = (float(estimate.value), float(estimate.low), float(estimate.high))
        rows.append(("rank correlation, all looks", *group.kind, "", *numbers, estimate.n, "seeds"))
    return tuple(rows)


def _table(measured: Sequence[_Honesty], curves: Sequence[Curve]) -> Rows:
    bins = max(len(honesty.bins.n) for honesty in measured)
    rows: list[tuple[str | int | float, ...]] = [
        ("expected -> happened, nats", *(f"tenth {place + 1}" for place in range(bins)), "rank correlation")
    ]
    for honesty in measured:
        pairs = zip(honesty.bins.expected.tolist(), honesty.bins.happened.tolist(), strict=True)
        cells = [f"{wanted:.2f} -> {came:.2f}" for wanted, came in pairs]
        rows.append((honesty.group.name, *cells, *[""] * (bins - len(cells)), _correlation(honesty.correlation)))
    for curve in curves:
        said = ", ".join(
            f"P={x:g}: {value:.2f}" for x, value in zip(curve.x, curve.estimate.value.tolist(), strict=True)
        )
        rows.append((f"{curve.group.name}, by P", *[""] * bins, said))
    return tuple(rows)
