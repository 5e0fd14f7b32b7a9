"""The figure of coherence: how much of the gain that imagined looks promise is information about the label."""

from __future__ import annotations

from infogaze.evaluation.coherence import Coherence
from infogaze.report.curves import Curve, Panel, interval_note, look_numbers, mean_over_scenes
from infogaze.report.drawing import Drawing, Drawn
from infogaze.report.gather import Chapter, Run
from infogaze.report.missing import left_out_note, measured_differently, not_measured
from infogaze.report.panels import curve_figure
from infogaze.report.tables import numbers, table


def by_coherence(chapter: Chapter) -> Drawn:
    """Mutual information and incoherence of the chosen looks, by look."""
    groups = chapter.with_measured(Coherence)
    if not groups:
        return not_measured(Coherence)
    if (differ := measured_differently(groups, _scenes, "the scenes looked at")) is not None:
        return differ
    imagining = [group for group in chapter.lookers if group.runs[0].about.num_samples]
    looks = look_numbers(chapter.num_looks)[1:]
    panels = tuple(
        Panel(
            measure=f"{words}, nats",
            against="look t",
            curves=tuple(
                Curve(
                    group=group,
                    x=looks,
                    estimate=mean_over_scenes([getattr(run.read(Coherence), part) for run in group.runs]),
                )
                for group in groups
            ),
            title=words,
        )
        for part, words in (("mutual_information", "mutual information"), ("incoherence", "incoherence"))
    )
    curves = panels[0].curves
    return (
        Drawing(
            figure=curve_figure(
                f"{chapter.data}: what the imagined gain is made of", panels, foot=interval_note(curves)
            ),
            sentence=" ".join(
                _sentence(good, bad) for good, bad in zip(*(panel.curves for panel in panels), strict=True)
            ),
            alt_text=f"mutual information and incoherence of the chosen looks by look on {chapter.data}, {len(curves)} methods",
            note="Equation 7 is the sum of both. Incoherence, KL[mean of p(y | f~, h) || p(y | h)], is no information: a look cannot "
            f"teach it. Both are as imagined, without any correction.{left_out_note(imagining, groups)}",
            numbers=numbers(panels),
            table=table(panels),
        ),
    )


def _scenes(run: Run) -> int:
    return len(run.read(Coherence).incoherence)


def _sentence(information: Curve, rest: Curve) -> str:
    useful, useless = (float(curve.estimate.value.mean()) for curve in (information, rest))
    share = useful / max(useful + useless, 1e-12)
    return (
        f"Of the {useful + useless:.3f} nats that {information.group.name} expects of a look on average, {100 * share:.0f} % are "
        "information."
    )
