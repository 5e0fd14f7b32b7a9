"""`infogaze train PRESET`: from a data set to a trained model, in a run folder that survives being killed."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from infogaze.cli.names import METHOD_NAMES, PRESET_NAMES, RECIPE_NAMES
from infogaze.cli.settings import (
    changes_of,
    read_changes_of,
    read_run_file,
    resolved_changes,
    resolved_options,
    resolved_preset,
    resolved_recipe,
    with_values,
    without_names,
)
from infogaze.tasks.train import train
from infogaze.training.loop import Stopped
from infogaze.training.phase_run import Diverged


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a model, phase by phase, and write it to a folder together with its metrics and checkpoints.

    A preset is where one begins: every value of it, of the model and of the recipe has an option, and a place in a TOML file (--config),
    which `infogaze init` writes for a folder of own pictures. Options go before the file.

    The same command again goes on where the run was stopped or killed. OUT belongs to one configuration and one process at a time. OUT
    itself is then a model folder: `infogaze.load(OUT)` and `infogaze look --model OUT` open it. Under torchrun it trains in several
    processes.
    """

    preset: Annotated[
        str | None, tyro.conf.Positional, tyro.conf.arg(metavar=f"[{PRESET_NAMES}]", help_behavior_hint="")
    ] = None
    """Sizes of the networks and what belongs to the data set; the file's, or own, if not given."""
    out: Path
    """The run folder."""
    config: Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")] = None
    """A TOML file with settings."""
    data: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """The image set, see `infogaze data list`; the preset's own if not given. Its sizes and classes go before the preset's."""
    root: Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")] = None
    """Where the set's files are; digits needs none."""
    download: bool = False
    """Fetch the set into the root first, where infogaze knows how."""
    recipe: Annotated[str | None, tyro.conf.arg(metavar=RECIPE_NAMES, help_behavior_hint="")] = None
    """How long and how hard; the preset's own if not given. `paper`, with --method paper, is the paper's training. What the paper leaves
    open is chosen: sigma and D begin at the features, looks of phase 2 are on the grid and none comes twice, the plateau waits for ten
    epochs, 1000, 100 and 100 epochs are the end; docs/model.md has all. No gradient is clipped, batch norm is not refitted."""
    length: float = 1.0
    """Train for this many times the recipe's epochs or steps, in every phase: 0.5 is half as long."""
    method: Annotated[str | None, tyro.conf.arg(metavar=METHOD_NAMES, help_behavior_hint="")] = None
    """Ours, an ablation, a baseline or a bound; infogaze if not given."""
    phases: Annotated[tuple[int, ...] | None, tyro.conf.arg(metavar="INT [...]", help_behavior_hint="")] = None
    """Which of the method's phases to run; all if not given."""
    start_from: Annotated[str | None, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")] = None
    """A bundled name, or a model or run folder, whose weights to begin with; needed where phase 1 is left out. From another method's
    folder, those of F, R and C are taken."""
    val_fraction: Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="")] = None
    """Share of the training split that is the validation split. Ten times a phase the accuracy on up to 1000 of its scenes is measured,
    and a phase ends with the weights that had the best; metrics.jsonl has the numbers. If not given, 0.1 for own pictures, else 0."""
    num_labels: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """How many training images keep their label, as many of each class as can be; all if not given. The others teach what is imagined,
    where the method imagines, and nothing else."""
    teacher: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")] = None
    """A run of a method that sees complete images, on the same set: what it says of each training image is taught beside the label
    (--recipe.teacher-weight). No look sees more for it."""
    seed: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Fixes everything: weights, order, looks, augmentation; 0 if not given."""
    device: str = "auto"
    """Where to train: cpu, cuda, cuda:1; auto takes a GPU if there is one."""
    save_every: float = 120.0
    """Seconds between checkpoints."""
    track: bool = False
    """Write TensorBoard's files to OUT/tensorboard as well; needs the extra `track`."""

    def run(self) -> None:
        """Read, train, save."""
        file = read_run_file(self.config)
        preset_changes, recipe_changes = changes_of(self)
        settings = resolved_preset(file, self.preset)
        recipe = resolved_recipe(file, self.recipe or file.recipe_name or settings.recipe, recipe_changes)
        root = self.root if self.root is not None else file.root
        try:
            train(
                out=self.out,
                preset=settings,
                method=self.method or file.method or "infogaze",
                data=self.data or file.data,
                root=root,
                download=self.download,
                read=resolved_options(file, read_changes_of(self)),
                recipe=recipe,
                changes=resolved_changes(file, preset_changes),
                length=self.length,
                phases=self.phases,
                start_from=self.start_from,
                val_fraction=file.val_fraction if self.val_fraction is None else self.val_fraction,
                num_labels=file.num_labels if self.num_labels is None else self.num_labels,
                teacher=self.teacher,
                seed=(file.seed or 0) if self.seed is None else self.seed,
                device=self.device,
                save_every=self.save_every,
                track=self.track,
            )
        except Stopped as stop:
            raise SystemExit(tell_stopped(stop)) from None
        except Diverged as error:
            print(f"infogaze: {error}")
            raise SystemExit(1) from None


def tell_stopped(stop: Stopped) -> int:
    """Say how to go on, and the exit code that a shell has for the signal."""
    print(f"{stop}; the same command again goes on from there", flush=True)
    return 128 + (stop.signal or signal.SIGTERM)


def read(arguments: Sequence[str]) -> Train:
    """The command with its options, those of the values of preset, model and recipe among them."""
    return tyro.cli(with_values(Train, arguments), prog="infogaze train", args=without_names(arguments))
