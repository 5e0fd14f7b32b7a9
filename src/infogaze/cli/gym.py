"""`infogaze gym MODEL`: how well a model does in ap_gym's environments, whose glimpses move by bounded steps."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from infogaze.devices import device_named
from infogaze.errors import InfogazeError
from infogaze.models import load

_AT_ONCE = 100


@dataclass(frozen=True, kw_only=True)
class Gym:
    """Let a model play ap_gym's image-classification environments, whose glimpses move by bounded steps.

    Accuracy is printed after each number of looks. The environment's glimpses must have the model's size, and its images that of the
    model's scenes, times the environment's sensor_scale. Needs the extra `gym`.
    """

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A bundled model's name, or a folder that `quickstart`, `train` or `infogaze.save` wrote."""
    env: str
    """One of ap_gym's ids, such as CIFAR10-test-v0, whose images it downloads; or a set of `infogaze data list`, over whose test images its
    environment is made, with glimpses of the model's size."""
    root: Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")] = None
    """Where a set's files are."""
    episodes: int = 200
    """How many are played."""
    seed: int = 0
    """Of the environment, and of what is imagined."""
    device: str = "auto"
    """Where: cpu, cuda, cuda:1; auto takes a GPU if there is one."""

    def run(self) -> None:
        """Play, print a line a look."""
        from infogaze.adapters.ap_gym import environment, play  # takes long to import, and may not be installed

        if self.episodes < 1:
            raise InfogazeError(f"episodes is {self.episodes}; it must be at least 1")
        agent = load(self.name, device_named(self.device))
        env = environment(self.env, agent, root=self.root, num_envs=min(self.episodes, _AT_ONCE))
        with contextlib.closing(env):
            played = play(agent, env, episodes=self.episodes, seed=self.seed)
        accuracy = played.accuracy
        print(f"{self.name} in {self.env}, {accuracy.n} episodes, 95 % intervals")
        print("looks  accuracy, %")
        for looks, ends in enumerate(zip(accuracy.value, accuracy.low, accuracy.high, strict=True), 1):
            value, low, high = (100 * float(end) for end in ends)
            print(f"{looks:5d}  {value:5.1f}  ({low:.1f} to {high:.1f})")
        print(f"mean return {float(played.returns.mean()):.2f}")


def read(arguments: Sequence[str]) -> Gym:
    """The command with its options."""
    return tyro.cli(Gym, prog="infogaze gym", args=list(arguments))
