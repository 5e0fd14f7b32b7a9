"""The figure of accuracy against the share of the area observed (the paper's figure 5), overlaps counted once."""

from __future__ import annotations

import torch
from torch import Tensor

from infogaze.evaluation.accuracy import Estimate, accuracy, mean_over_runs
from infogaze.evaluation.area import accuracy_by_area, observed_share
from infogaze.report.by_look import accuracy_levels
from infogaze.report.curves import Curve, Panel, behind
from infogaze.report.drawing import Drawing, Drawn
from infogaze.report.gather import BASELINES, OURS, Chapter, Group
from infogaze.report.missing import not_trained
from infogaze.report.panels import curve_figure
from infogaze.report.tables import numbers, table
from infogaze.report.words import share

_LEAST = 0.01  # of all looks; the accuracy of fewer in a bin says little


def by_area(chapter: Chapter) -> Drawn:
    """Accuracy of all methods, by how much of the scene they had seen."""
    if not chapter.lookers:
        return not_trained(OURS)
    curves = tuple(curve for group in chapter.lookers if (curve := _curve(chapter, group)) is not None)
    panel = Panel("accuracy, %", "area observed, %", curves, accuracy_levels(chapter), 100)
    glimpse = 100 * _glimpse(chapter)
    return (
        Drawing(
            curve_figure(f"{chapter.data}: accuracy against the area observed", (panel,), behind(curves)),
            _sentence(chapter, curves),
            f"accuracy against the share of the area observed on {chapter.data}, one curve for each of {len(curves)} methods",
            "All looks of all scenes; a pixel seen twice counts once. The first bin is one glimpse, "
            f"{glimpse:.4g} % of the area, the others are half a glimpse wide. A bin with less than a hundredth of the looks is left out. "
            "Looks at one scene go together, so a band of one seed, which is over looks, is somewhat too narrow.",
            numbers((panel,)),
            table((panel,)),
        ),
    )


def _glimpse(chapter: Chapter) -> float:
    return chapter.grid.glimpse**2 / (chapter.grid.height * chapter.grid.width)


def _bins(chapter: Chapter) -> tuple[Tensor, Tensor]:
    """Edges and middles. With a stride of half a glimpse what is seen is a whole number of quarter glimpses: the first bin holds
    one glimpse alone, and each after it two such numbers.
    """
    glimpse = _glimpse(chapter)
    inner = (1.125 + torch.arange(2 * (chapter.looks - 1), dtype=torch.float64) / 2) * glimpse
    inner = inner[inner < 1.0]
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
    middles = torch.cat([torch.tensor([glimpse], dtype=torch.float64), inner + glimpse / 4])
    return torch.cat([ends[:1], inner, ends[1:]]), middles.clamp(max=1.0)


def _curve(chapter: Chapter, group: Group) -> Curve | None:
    edges, middles = _bins(chapter)
    shares = [observed_share(run.summary.locations, chapter.grid).double() for run in group.runs]
    found = [accuracy_by_area(run.summary.right, seen, edges) for run, seen in zip(group.runs, shares, strict=True)]
    kept = torch.stack([count / count.sum() for _, count in found]).amin(0) >= _LEAST
    if not bool(kept.any()):
        return None
    x = tuple((100 * middles[kept]).tolist())
    if len(found) > 1:
        return Curve(group, x, mean_over_runs([values[kept] for values, _ in found]))
    # The looks in each bin are the scenes behind its interval, so that each bin has an interval of its own.
    index = torch.bucketize(shares[0], edges[1:-1], right=True)
    right = group.runs[0].summary.right
    parts = [accuracy(right[index == place][:, None]) for place in kept.nonzero().flatten().tolist()]
    value, low, high = (torch.cat([getattr(part, name) for part in parts]) for name in ("value", "low", "high"))
    counts = tuple(part.n for part in parts)
    return Curve(group, x, Estimate(value, low, high, sum(counts), "looks"), counts)


def _sentence(chapter: Chapter, curves: tuple[Curve, ...]) -> str:
    said = []
    for curve in curves:
        if curve.group.method != OURS:
            continue
        rivals = [
            rival for rival in curves if rival.group.method in BASELINES and rival.group.preset == curve.group.preset
        ]
        places = [x for x in curve.x if all(x in rival.x for rival in rivals)]
        # Where a quarter of the scene was seen, or the nearest bin that all of them have.
        place = min(places or curve.x, key=lambda x: abs(x - 25.0))
        here = curve.x.index(place)
        begin = f"With about {place:.0f} % of the area observed {curve.group.name} names {share(curve.estimate, here)} right"
        if not rivals or not places:
            said.append(f"{begin}; there is no baseline to compare with.")
            continue
        best = max(rivals, key=lambda rival: float(rival.estimate.value[rival.x.index(place)]))
        there = best.x.index(place)
        apart = _apart(curve.estimate, here, best.estimate, there)
        said.append(
            f"{begin}, the best baseline, {best.group.name}, {share(best.estimate, there)}: the 95 % intervals {apart}."
        )
    return " ".join(said) or f"{OURS} is not among these runs; the curves are those of the other methods."


def _apart(ours: Estimate, here: int, other: Estimate, there: int) -> str:
    overlap = bool(ours.low[here] <= other.high[there]) and bool(other.low[there] <= ours.high[here])
    if overlap:
        return "overlap"
    return f"do not overlap, and {OURS} is {'ahead' if ours.value[here] > other.value[there] else 'behind'}"
