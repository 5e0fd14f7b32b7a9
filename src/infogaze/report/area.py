"""The figure of accuracy against the share of the area observed (the paper's figure 5), overlaps counted once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from infogaze.evaluation.area import accuracy_by_area, observed_share
from infogaze.evaluation.estimates import Estimate, accuracy, mean_over_runs
from infogaze.report.by_look import accuracy_levels
from infogaze.report.curves import Curve, Panel, baselines_of, interval_note
from infogaze.report.drawing import Drawing, Drawn
from infogaze.report.gather import OURS, Chapter, Group
from infogaze.report.missing import not_trained
from infogaze.report.panels import curve_figure
from infogaze.report.tables import numbers, table
from infogaze.report.words import OURS_MISSING, percent_phrase

_LEAST = 0.01  # of all looks; the accuracy of fewer in a bin means little
_COMPARED = 25.0  # % of the area, at which the sentence compares


def by_area(chapter: Chapter) -> Drawn:
    """Accuracy of all methods, by how much of the scene they had seen."""
    if not chapter.lookers:
        return not_trained(OURS)
    curves = tuple(curve for group in chapter.lookers if (curve := _curve(chapter, group)) is not None)
    panel = Panel(
        measure="accuracy, %", against="area observed, %", curves=curves, levels=accuracy_levels(chapter), scale=100,
        read_at=_nearest(curves),
    )  # fmt: skip
    title = f"{chapter.data}: accuracy against the area observed"
    return (
        Drawing(
            figure=curve_figure(title, (panel,), foot=interval_note(curves)),
            sentence=_sentence(curves),
            alt_text=f"accuracy against the share of the area observed on {chapter.data}, {len(curves)} methods, one curve each",
            note="Curves end where their looks end, so the values beside the names are read at the dotted line. "
            f"All looks of all scenes; a pixel seen twice counts once. The first bin is one glimpse, {100 * _glimpse(chapter):.4g} % "
            "of the area, the others are half a glimpse wide. A bin with less than a hundredth of the looks is left out. Looks at one "
            "scene are correlated, so the band of a single seed, which is over looks, is somewhat too narrow.",
            numbers=numbers((panel,)),
            table=table((panel,)),
        ),
    )


def _glimpse(chapter: Chapter) -> float:
    """The area of a glimpse as a share of the scene's."""
    return chapter.grid.glimpse_size**2 / (chapter.grid.height * chapter.grid.width)


def _bins(chapter: Chapter) -> tuple[Float[Tensor, " edges"], Float[Tensor, " edges-1"]]:
    """Edges and middles. With a stride of half a glimpse the area seen is a whole number of quarter glimpses: the first bin holds
    one glimpse alone, and each after it two such numbers.
    """
    glimpse = _glimpse(chapter)
    inner = (1.125 + torch.arange(2 * (chapter.num_looks - 1), dtype=torch.float64) / 2) * glimpse
    inner = inner[inner < 1.0]
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
    middles = torch.cat([torch.tensor([glimpse], dtype=torch.float64), inner + glimpse / 4])
    return torch.cat([ends[:1], inner, ends[1:]]), middles.clamp(max=1.0)


def _curve(chapter: Chapter, group: Group) -> Curve | None:
    edges, middles = _bins(chapter)
    shares = [observed_share(run.summary.locations, chapter.grid).double() for run in group.runs]
    found = [accuracy_by_area(run.summary.correct, seen, edges) for run, seen in zip(group.runs, shares, strict=True)]
    kept = torch.stack([count / count.sum() for _, count in found]).amin(0) >= _LEAST
    if not bool(kept.any()):
        return None
    x = tuple((100 * middles[kept]).tolist())
    if len(found) > 1:
        return Curve(group=group, x=x, estimate=mean_over_runs([values[kept] for values, _ in found]))
    # The looks in each bin are the scenes behind its interval, so that each bin has an interval of its own.
    index = torch.bucketize(shares[0], edges[1:-1], right=True)
    correct = group.runs[0].summary.correct
    parts = [accuracy(correct[index == kept_bin][:, None]) for kept_bin in kept.nonzero().flatten().tolist()]
    value, low, high = (torch.cat([getattr(part, name) for part in parts]) for name in ("value", "low", "high"))
    counts = tuple(part.n for part in parts)
    estimate = Estimate(value=value, low=low, high=high, n=sum(counts), unit="looks")
    return Curve(group=group, x=x, estimate=estimate, counts=counts)


def _nearest(curves: Sequence[Curve]) -> float | None:
    """The area at which these are compared: of those that all of them have, the nearest to the one fixed beforehand."""
    common = set.intersection(*(set(curve.x) for curve in curves)) if curves else set()
    return min(common, key=lambda x: (abs(x - _COMPARED), x), default=None)


def _sentence(curves: tuple[Curve, ...]) -> str:
    sentences = []
    for curve in curves:
        if not curve.group.is_ours:
            continue
        baselines = baselines_of(curve.group, curves)
        common = _nearest((curve, *baselines))
        area = min(curve.x, key=lambda x: abs(x - _COMPARED)) if common is None else common
        reached = percent_phrase(curve.estimate, curve.x.index(area))
        begin = f"With about {area:.0f} % of the area observed {curve.group.name} has accuracy {reached}"
        if not baselines or common is None:
            sentences.append(f"{begin}; there is no baseline to compare with.")
            continue
        best = max(baselines, key=lambda baseline: float(baseline.estimate.value[baseline.x.index(area)]))
        other = percent_phrase(best.estimate, best.x.index(area))
        overlap = _overlap_phrase(curve, best, area)
        sentences.append(f"{begin}, the best baseline, {best.group.name}, {other}: the 95 % intervals {overlap}.")
    return " ".join(sentences) or OURS_MISSING


def _overlap_phrase(ours: Curve, other: Curve, area: float) -> str:
    here, there = ours.x.index(area), other.x.index(area)
    if bool(ours.estimate.low[here] > other.estimate.high[there]):
        return f"do not overlap, and {ours.group.name} is ahead"
    if bool(ours.estimate.high[here] < other.estimate.low[there]):
        return f"do not overlap, and {ours.group.name} is behind"
    return "overlap"
