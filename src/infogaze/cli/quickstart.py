"""`infogaze quickstart`: train on the embedded digits, compare looking by gain with looking at random, show both on one page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jaxtyping import Bool
from torch import Tensor

from infogaze.cli.train import stop_signals
from infogaze.data.digits import digits
from infogaze.data.options import Options
from infogaze.data.sets import Split
from infogaze.evaluation.accuracy import Estimate, accuracy, lead
from infogaze.evaluation.rollouts import Rollouts, roll_out
from infogaze.files import locked, write_whole
from infogaze.gaze.agent import Agent
from infogaze.gaze.policies import GainPolicy, Policy, RandomPolicy
from infogaze.models import save
from infogaze.nn.model import Recogniser, build
from infogaze.plots.rollout import rollout_figure
from infogaze.plots.style import inline, png
from infogaze.presets import preset
from infogaze.progress import Display, display
from infogaze.report.accuracy import accuracy_figure
from infogaze.report.page import Picture, Section, page
from infogaze.report.words import difference, looks_said, told_looks
from infogaze.runs import DataChoice, RunConfig, RunFolder
from infogaze.tasks.watching import Bars
from infogaze.training.loop import Stopped, Surroundings, train
from infogaze.training.recipe import Recipe, recipe

_ROLLOUTS = 12
_FAILURES = 3


@dataclass(frozen=True)
class Quickstart:
    """Train on the embedded handwritten digits, about three minutes on two cores, and see the model look.

    Writes OUT/model, which `infogaze.load` and `infogaze look` open, and OUT/index.html, a page with accuracy by look and a dozen
    rollouts. Nothing is downloaded.
    """

    out: Path
    """Folder to write to; it is made if need be. A first run that was stopped in it goes on where it was."""
    seed: int = 0
    """Fixes the digits, the training and the looks."""

    def run(self) -> None:
        """Train, measure, write."""
        first_run(self.out, self.seed, recipe("quickstart"))
        print(f"model:  {self.out / 'model'}\npage:   {self.out / 'index.html'}")


def first_run(out: Path, seed: int, recipe: Recipe) -> tuple[Estimate, Estimate]:
    """Do it with any recipe; the accuracy by look, by gain and at random."""
    settings = preset("digits")
    data = digits(seed)
    config = RunConfig(settings, recipe, DataChoice("digits", None, Options(seed=seed)), seed)
    folder = RunFolder(out / "run", config)
    model = build(settings.model, seed)
    agent = Agent(model, data.classes, looks=settings.looks, samples=settings.samples, config=settings.model)
    with display() as screen:
        _train(model, data.train, config, folder, screen)
        save(agent, out / "model")
        by_gain = _look(agent, data.test, GainPolicy(settings.samples), "looking by gain", seed, screen)
        at_random = _look(agent, data.test, RandomPolicy(), "looking at random", seed, screen)
    ours, other = accuracy(by_gain.right), accuracy(at_random.right)
    print("look          " + "".join(f"{look:>8}" for look in range(len(ours.value))))
    for name, curve in (("by gain, %", ours), ("at random, %", other)):
        print(f"{name:<14}" + "".join(f"{100 * value:8.1f}" for value in curve.value.tolist()))
    write_whole(out / "index.html", _page(agent, data.test, by_gain, at_random).encode())
    return ours, other


def _train(model: Recogniser, split: Split, config: RunConfig, folder: RunFolder, screen: Display) -> None:
    with locked(folder.path), stop_signals() as asked:
        try:
            train(model, split, config, folder, Surroundings(Bars(screen).notice, screen.say, lambda: bool(asked)))
        except Stopped as stop:
            screen.say(f"{stop}; the same command again goes on from there")
            raise SystemExit(128 + asked[0]) from None


def _look(agent: Agent, split: Split, policy: Policy, name: str, seed: int, screen: Display) -> Rollouts:
    bar = screen.bar(name, len(split))
    return roll_out(agent, split, policy, seed=seed, batch=50, notice=bar.advance)


def chosen_scenes(right: Tensor, count: int, failures: int) -> list[int]:
    """Which scenes to show, by rule: the first ones named right at the last look, then the first ones named wrong.

    There are `failures` wrong ones among them where there are that many, and more where the right ones do not fill the count.
    """
    good, wrong = (chosen.nonzero().flatten().tolist() for chosen in (right[:, -1], ~right[:, -1]))
    good = good[: count - min(failures, len(wrong))]
    return good + wrong[: count - len(good)]


def compared(by_gain: Bool[Tensor, "N T"], at_random: Bool[Tensor, "N T"]) -> str:
    """Who is ahead at the looks that are told of, fixed beforehand, from whether each scene was named right by the two."""
    ahead = lead(by_gain, at_random)
    said = (
        f"After {looks_said(look)} {difference('looking by gain', 'looking at random', ahead, look)}."
        for look in told_looks(by_gain.shape[1])
    )
    return f"{' '.join(said)} The classifier and the first looks are the same."


def _page(agent: Agent, split: Split, by_gain: Rollouts, at_random: Rollouts) -> str:
    ours, other = accuracy(by_gain.right), accuracy(at_random.right)
    table = (
        ("look t", *(str(look) for look in range(len(ours.value)))),
        ("by gain, %", *_cells(ours)),
        ("at random, %", *_cells(other)),
    )
    curve = Picture(inline(png(accuracy_figure(ours, other, 1 / len(agent.classes)))), "accuracy by look, two policies")
    scenes = chosen_scenes(by_gain.right, _ROLLOUTS, _FAILURES)
    wrong = sum(not bool(by_gain.right[index, -1]) for index in scenes)
    pictures = tuple(_rollout(agent, split, by_gain, index) for index in scenes)
    return page(
        "A first run: digits that are never seen whole",
        "The model sees one 8x8 window of a 32x32 scene at a time. After a random first look it imagines what the rest may hold, "
        "expects of every place how much it would tell about the label, and looks where that is most.",
        (
            Section("Accuracy by look", compared(by_gain.right, at_random.right), (curve,), table),
            Section(
                "Twelve rollouts" if len(scenes) == 12 else f"{len(scenes)} rollouts",
                f"The first {len(scenes) - wrong} test scenes named right after the last look, then the first {wrong} named wrong. "
                "The upper maps are the expected information gain that chose each look; the complete scene is there for you alone.",
                pictures,
            ),
        ),
        f"Test scenes: {ours.n} drawings that training never saw. Intervals: Wilson for shares, normal for paired differences.",
    )


def _cells(curve: Estimate) -> tuple[str, ...]:
    return tuple(
        f"{100 * value:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
        for value, low, high in zip(curve.value.tolist(), curve.low.tolist(), curve.high.tolist(), strict=True)
    )


def _rollout(agent: Agent, split: Split, rollouts: Rollouts, index: int) -> Picture:
    label = int(rollouts.labels[index])
    figure = rollout_figure(
        split.images[index],
        rollouts.locations[index],
        rollouts.gains[index],
        rollouts.probabilities[index],
        agent.model.grid,
        agent.classes,
        label,
    )
    named = agent.classes[int(rollouts.probabilities[index, -1].argmax())]
    return Picture(inline(png(figure, dpi=100)), f"a rollout on a {agent.classes[label]}, named {named} at the end")
