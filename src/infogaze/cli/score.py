"""`infogaze score SOURCE`: many scenes classified look by look, one row a scene, in shards that can be killed and begun again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from infogaze.cli.settings import RunFile, read_changes_of, resolved_options, with_read
from infogaze.gaze.stopping import Gain
from infogaze.tasks.score import score


@dataclass(frozen=True, kw_only=True)
class Score:
    """Classify many scenes look by look, and write one row a scene as Parquet.

    Scenes are written in parts, each whole or not there: the same command again does what is missing. A row has the scene's id, its label
    where it is known, prediction, probabilities, looks taken, why they ended, their locations, and what is wrong with a file that is no
    usable picture. OUT/score.json says what the rows depend on, and keeps rows of another model, source, seed or budget out.
    """

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
    """An image set by its name, see `infogaze data list`, or a folder of pictures, those in the folders below it too."""
    out: Path
    """Folder of the rows; all shards may share it."""
    model: str = "cifar10-plus"
    """A bundled model's name, or a folder that `quickstart`, `train` or `infogaze.save` wrote."""
    shard: Annotated[str, tyro.conf.arg(metavar="K/N")] = "1/1"
    """Which scenes: every N-th part from the K-th on, so that N processes on any machines share the work."""
    root: Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")] = None
    """Where the set's files are; digits needs none."""
    split: Literal["all", "train", "test"] = "all"
    """Which images of a set."""
    budget: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """The most looks; the model's own budget if not given."""
    stop_at: Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="")] = None
    """Stop a scene as soon as its most likely label has this probability."""
    stop: bool = True
    """Stop as the model's own rule says, if `infogaze calibrate` gave it one and nothing above is another than it was calibrated for."""
    gain: Gain = "exact"
    """What chooses the places: what the model imagines, or what `infogaze distil` made of it, which is many times as fast."""
    seed: int = 0
    """Of the first looks and of what is imagined; a scene's own numbers follow from it and the scene's id."""
    batch_size: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Scenes at a time; 1000 on a GPU and 200 on the CPU if not given."""
    part_size: int = 1000
    """Scenes in a file: what is lost, at most, when a process is killed."""
    device: str = "auto"
    """Where: cpu, cuda, cuda:1; auto takes a GPU if there is one."""
    compile: bool = False
    """Compile the model and use bfloat16, on a GPU: it takes a minute at first, and is faster from then on."""

    def run(self) -> None:
        """Do what is missing of the shard, and say what its rows hold."""
        found = score(
            self.source,
            model=self.model,
            out=self.out,
            shard=self.shard,
            root=self.root,
            split=self.split,
            options=resolved_options(RunFile(), read_changes_of(self)),
            budget=self.budget,
            stop_at=self.stop_at,
            stop=self.stop,
            gain=self.gain,
            seed=self.seed,
            batch_size=self.batch_size,
            part_size=self.part_size,
            device=self.device,
            compile=self.compile,
        )
        said = [f"{found.scenes} scenes, {found.added} of them now", f"{found.mean_looks:.2f} looks a scene"]
        if found.accuracy is not None:
            said.append(f"accuracy {100 * found.accuracy:.1f} %")
        if found.problems:
            said.append(f"{found.problems} could not be read")
        print(f"{self.out}: shard {self.shard}: {', '.join(said)}")


def read(arguments: Sequence[str]) -> Score:
    """The command with its options."""
    return tyro.cli(with_read(Score), prog="infogaze score", args=list(arguments))
