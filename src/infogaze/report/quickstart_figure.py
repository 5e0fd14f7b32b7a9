"""The quickstart's figure of accuracy by look: one curve a policy, with intervals."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from infogaze.evaluation.estimates import Estimate
from infogaze.plots.style import OTHER, OURS, QUIET, house_style


def accuracy_figure(ours: Estimate, random: Estimate, chance: float) -> Figure:
    """Looking by gain against looking at random, on the same classifier and scenes."""
    with house_style():
        figure = Figure(figsize=(6.2, 3.6), layout="constrained")
        axes = figure.add_subplot()
        looks = range(len(ours.value))
        for name, colour, marker, curve in (("by gain", OURS, "o", ours), ("at random", OTHER, "s", random)):
            axes.fill_between(looks, 100 * curve.low, 100 * curve.high, color=colour, alpha=0.15, linewidth=0)
            axes.plot(looks, 100 * curve.value, color=colour, marker=marker, markersize=4, label=name)
            axes.annotate(
                f"{name}, {100 * curve.value[-1]:.1f} %", (len(looks) - 1, 100 * float(curve.value[-1])),
                xytext=(8, 0), textcoords="offset points", color=colour, va="center", annotation_clip=False,
            )  # fmt: skip
        axes.axhline(100 * chance, color=QUIET, linewidth=1, linestyle=":")
        axes.annotate("chance", (0, 100 * chance), xytext=(0, 3), textcoords="offset points", color=QUIET)
        axes.set(xlabel="look t", ylabel="accuracy, %", ylim=(0, 100))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y")
        return figure
