"""A first run: train on the embedded digits, compare looking by gain with looking at random, show both on one page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from jaxtyping import Bool
from torch import Tensor

from infogaze.data.digits import digits
from infogaze.data.options import ReadOptions
from infogaze.data.sets import ImageSet, Split
from infogaze.evaluation.estimates import Estimate, accuracy, lead
from infogaze.evaluation.rollouts import Rollouts, roll_out
from infogaze.files import write_whole
from infogaze.gaze.agent import Agent
from infogaze.gaze.policies import RandomPolicy
from infogaze.methods.registry import METHODS, build_for
from infogaze.plots.rollout import rollout_figure
from infogaze.plots.style import inline, png
from infogaze.presets import preset
from infogaze.progress import Display, display
from infogaze.report.page import Picture, Section, page
from infogaze.report.quickstart_figure import accuracy_figure
from infogaze.report.words import difference, looks_phrase, reported_looks
from infogaze.rng import scene_seeds
from infogaze.runs import DataChoice, RunConfig, RunFolder
from infogaze.tasks.train import run
from infogaze.training.recipe import Recipe

_METHOD = "infogaze"
_ROLLOUTS = 12
_FAILURES = 3


def quickstart(out: Path, *, seed: int, recipe: Recipe) -> tuple[Estimate, Estimate]:
    """Do it with any recipe; the accuracy by look, by gain and at random. Writes out/model and out/index.html."""
    settings, images = preset("digits"), digits(seed)
    settings = replace(settings, model=METHODS[_METHOD].sizes(settings.model))
    config = RunConfig(
        method=_METHOD,
        preset=settings,
        recipe=recipe,
        data=DataChoice("digits", None, ReadOptions(seed=seed)),
        seed=seed,
        phases=tuple(range(1, len(METHODS[_METHOD].phases) + 1)),
    )
    folder = RunFolder(out / "model", config)
    with display() as screen:
        agent = run(build_for(_METHOD, settings.model, seed), config, images=images, folder=folder, screen=screen)
        by_gain = _looks(agent, images, "looking by gain", seed=seed, screen=screen)
        at_random = _looks(agent.with_policy(RandomPolicy()), images, "looking at random", seed=seed, screen=screen)
    ours, other = accuracy(by_gain.correct), accuracy(at_random.correct)
    print("look            " + "".join(f"{look:>8}" for look in range(len(ours.value))))
    for name, curve in (("by gain, %", ours), ("at random, %", other)):
        print(f"{name:<16}" + "".join(f"{100 * value:8.1f}" for value in curve.value.tolist()))
    write_whole(out / "index.html", _page(agent, images.test, by_gain, at_random=at_random, seed=seed).encode())
    return ours, other


def _looks(agent: Agent, images: ImageSet, name: str, *, seed: int, screen: Display) -> Rollouts:
    bar = screen.bar(name, len(images.test))
    return roll_out(agent, images.test, seed=seed, batch_size=50, on_progress=bar.advance)


def chosen_scenes(correct: Bool[Tensor, "N T"], count: int, failures: int) -> list[int]:
    """Which scenes to show, by rule: the first that are correct at the last look, then the first that are wrong.

    There are `failures` wrong ones among them where there are that many, and more where the correct ones do not fill the count.
    """
    good, wrong = (chosen.nonzero().flatten().tolist() for chosen in (correct[:, -1], ~correct[:, -1]))
    good = good[: count - min(failures, len(wrong))]
    return good + wrong[: count - len(good)]


def compared(by_gain: Bool[Tensor, "N T"], at_random: Bool[Tensor, "N T"]) -> str:
    """Who is ahead at the looks that sentences report, fixed beforehand, from whether each prediction of the two is correct."""
    ahead = lead(by_gain, at_random)
    sentences = (
        f"After {looks_phrase(look)} {difference('looking by gain', 'looking at random', ahead=ahead, look=look)}."
        for look in reported_looks(by_gain.shape[1])
    )
    return f"{' '.join(sentences)} The classifier and the first looks are the same."


def _page(agent: Agent, split: Split, by_gain: Rollouts, *, at_random: Rollouts, seed: int) -> str:
    ours, other = accuracy(by_gain.correct), accuracy(at_random.correct)
    table = (
        ("look t", *(str(look) for look in range(len(ours.value)))),
        ("by gain, %", *_cells(ours)),
        ("at random, %", *_cells(other)),
    )
    scenes = chosen_scenes(by_gain.correct, _ROLLOUTS, _FAILURES)
    shown = roll_out(
        agent,
        Split(split.images[scenes], split.labels[scenes]),
        seed=scene_seeds(seed, len(split))[scenes],
        batch_size=50,
        imagine=True,
    )
    curve = Picture(inline(png(accuracy_figure(ours, other, 1 / len(agent.classes)))), "accuracy by look, two policies")
    wrong = sum(not bool(by_gain.correct[index, -1]) for index in scenes)
    return page(
        "A first run: digits that are never seen whole",
        opening="The model sees one 8x8 window of a 32x32 scene at a time. After a random first look it imagines what the rest may hold, "
        "expects of every location how much it would tell about the label, and looks where that is most.",
        sections=(
            Section(
                title="Accuracy by look",
                sentence=compared(by_gain.correct, at_random.correct),
                pictures=(curve,),
                table=table,
            ),
            Section(
                title="Twelve rollouts" if len(scenes) == 12 else f"{len(scenes)} rollouts",
                sentence=f"The first {len(scenes) - wrong} test scenes that are correct after the last look, then the first {wrong} that "
                "are wrong. The upper maps are the expected information gain that chose each look. What was not looked at is imagined, "
                "and below it stands how uncertain that is. The complete scene is there for you alone.",
                pictures=tuple(
                    _rollout(agent, split.images[scene], shown, index=index) for index, scene in enumerate(scenes)
                ),
            ),
        ),
        closing=f"Test scenes: {ours.n} drawings that training never saw. Intervals: Wilson for accuracies, normal for paired differences.",
    )


def _cells(curve: Estimate) -> tuple[str, ...]:
    return tuple(
        f"{100 * value:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
        for value, low, high in zip(curve.value.tolist(), curve.low.tolist(), curve.high.tolist(), strict=True)
    )


def _rollout(agent: Agent, image: Tensor, rollouts: Rollouts, *, index: int) -> Picture:
    label = int(rollouts.labels[index])
    figure = rollout_figure(
        image,
        locations=rollouts.locations[index],
        gains=rollouts.gains[index],
        probabilities=rollouts.probabilities[index],
        grid=agent.model.grid,
        classes=agent.classes,
        label=label,
        imagined=None if rollouts.imagined is None else rollouts.imagined[index],
        uncertainty=None if rollouts.uncertainty is None else rollouts.uncertainty[index],
    )
    predicted = agent.classes[int(rollouts.predictions[index, -1])]
    return Picture(
        inline(png(figure, dpi=100)), f"a rollout on a {agent.classes[label]}, predicted {predicted} at the end"
    )
