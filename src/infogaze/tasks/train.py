"""From a data set to a trained model, in a run folder that survives being killed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from infogaze.data.augmentation import Augmentation
from infogaze.data.options import AS_IT_IS, ReadOptions
from infogaze.data.registry import OWN_DATA, load_set
from infogaze.data.sets import ImageSet, Split, keep_labels
from infogaze.devices import device_named
from infogaze.errors import InfogazeError
from infogaze.evaluation.estimates import Estimate, accuracy
from infogaze.evaluation.exact_pass import classified_whole
from infogaze.evaluation.rollouts import roll_out
from infogaze.evaluation.temperature import fit_temperatures
from infogaze.files import FileError
from infogaze.gaze.agent import Agent, Origin
from infogaze.gaze.policies import RandomPolicy
from infogaze.grid import extract
from infogaze.methods.registry import METHODS, build_for
from infogaze.models import load, make_agent, save
from infogaze.nn.compilation import compile_parts
from infogaze.nn.model import GlimpseClassifier
from infogaze.nn.pixels import normalise_pixels
from infogaze.nn.typicality import Typicality, fit_typicality
from infogaze.presets import Preset
from infogaze.presets import preset as preset_named
from infogaze.progress import Display, display
from infogaze.rng import SceneNoise, scene_seeds, stream_seed
from infogaze.runs import DataChoice, RunConfig, RunFolder
from infogaze.tasks.requirements import require_fit, require_sees_whole
from infogaze.tasks.signals import stop_signals
from infogaze.tasks.sizes import MANY_LOCATIONS, suggest_sizes
from infogaze.tasks.tracking import tracker
from infogaze.tasks.validation import LARGEST, split_validation, validation_size, validator
from infogaze.tasks.watching import TrainingBars
from infogaze.training.distributed import first_process_first, processes, rank, world_size
from infogaze.training.loop import Stopped
from infogaze.training.loop import train as run_phases
from infogaze.training.phases import Objective
from infogaze.training.plan import Callbacks, Plan, Progress
from infogaze.training.recipe import Recipe
from infogaze.training.recipe import recipe as recipe_named
from infogaze.training.targets import Teacher
from infogaze.typed import override

_FEW_STEPS = 300
"""A phase with fewer learns little."""
_TYPICAL_SCENES = 2000
"""Training scenes that tell which glimpses are usual."""


def train(
    *,
    out: str | os.PathLike[str],
    preset: str | Preset = "own",
    method: str = "infogaze",
    data: str | None = None,
    root: str | os.PathLike[str] | None = None,
    download: bool = False,
    read: ReadOptions = AS_IT_IS,
    recipe: str | Recipe | None = None,
    changes: Mapping[str, Any] | None = None,
    length: float = 1.0,
    phases: Sequence[int] | None = None,
    start_from: str | os.PathLike[str] | None = None,
    val_fraction: float | None = None,
    num_labels: int | None = None,
    teacher: str | os.PathLike[str] | None = None,
    seed: int = 0,
    device: str = "auto",
    save_every: float = 120.0,
    track: bool = False,
    quiet: bool = False,
) -> Agent:
    """Train a model and write it to `out`, as `infogaze train` does; the same call again goes on where it was stopped.

    `preset` and `recipe` are names, or values with anything changed. `changes` are made to the preset once the size of the images is
    known: `{"num_looks": 5, "model": {"glimpse_size": 16}}`. Ctrl-C raises `infogaze.Stopped`, after a checkpoint.
    """
    if not 0.0 <= save_every < float("inf"):
        raise InfogazeError(f"save_every is {save_every}; it must be a number of seconds, at least 0")
    settings = preset_named(preset) if isinstance(preset, str) else preset
    chosen = settings.recipe if recipe is None else recipe
    way = (recipe_named(chosen) if isinstance(chosen, str) else chosen).scaled(length)
    source = settings.data if data is None else data
    if val_fraction is None:
        val_fraction = _own_default(settings, source)
    with processes(device_named(device)) as own_device:
        with first_process_first():
            images = load_set(source, None if root is None else str(root), read, download=download)
            settings = fitted(settings, images, changes or {})
            require_own(method, (changes or {}).get("model", {}))
            config = RunConfig(
                method=method,
                preset=replace(settings, model=METHODS[method].sizes(settings.model)),
                recipe=way,
                data=DataChoice(source, None if root is None else str(root), read),
                seed=seed,
                phases=tuple(range(1, len(METHODS[method].phases) + 1)) if phases is None else tuple(phases),
                start_from=None if start_from is None else str(start_from),
                val_fraction=val_fraction,
                num_labels=num_labels,
                teacher=None if teacher is None else str(teacher),
            )
            model = begin(config).to(own_device)
            teaching = teacher_of(config, images, own_device)
            # Refused before the folder belongs to this configuration.
            left = len(images.train) - validation_size(len(images.train), val_fraction)
            if num_labels is not None and num_labels > left:
                raise InfogazeError(f"num_labels is {num_labels}; there are {left} images to train on")
            folder = RunFolder(Path(out), config)
        if world_size() > 1 and own_device.type == "cuda":
            model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
        with display(quiet=quiet or rank() > 0) as screen:
            watchers = [tracker(Path(out))] if track and rank() == 0 else []
            agent = run(
                model,
                config,
                images=images,
                folder=folder,
                screen=screen,
                watchers=watchers,
                save_every=save_every,
                teacher=teaching,
            )
            if rank() == 0:
                screen.say(f"model: {out}{phases_left(method, config.phases)}")
                if source in OWN_DATA and not phases_left(method, config.phases):
                    _tell_gain_against_random(agent, images.test, method=method, screen=screen)
    return agent


def run(
    model: GlimpseClassifier,
    config: RunConfig,
    *,
    images: ImageSet,
    folder: RunFolder,
    screen: Display,
    watchers: Sequence[Callable[[Progress], None]] = (),
    save_every: float = 120.0,
    teacher: Teacher | None = None,
) -> Agent:
    """Train the model by its configuration in a folder that no other process trains in, and save it there: the one way that all take."""
    training, validation = split_validation(images.train, config)
    if config.num_labels is not None:
        training = keep_labels(training, config.num_labels, seed=stream_seed(config.seed, "labels"))
    listeners = [TrainingBars(screen).on_step, *watchers]

    def on_step(progress: Progress) -> None:
        for listener in listeners:
            listener(progress)

    with folder.lock() if rank() == 0 else nullcontext(), stop_signals() as heard:
        for line in _doubts(config, model, len(training)):
            screen.say(f"warning: {line}")
        callbacks = Callbacks(
            on_step=on_step,
            on_warning=lambda line: screen.say(f"warning: {line}"),
            should_stop=lambda: bool(heard),
            validate=validator(validation, config) if len(validation) else None,
            save_every=save_every,
        )
        try:
            plan = replace(plan_of(config, model), teacher=teacher)
            run_phases(model, plan, split=training, folder=folder, callbacks=callbacks)
            settings = config.preset
            contents = settings.num_contents(METHODS[config.method].imagination)
            origin = Origin(method=config.method, config=settings.model, num_samples=contents)
            agent = make_agent(
                model,
                images.classes,
                origin=origin,
                num_looks=settings.num_looks,
                flip_tta=settings.flip_tta,
                fit="crop" if config.data.options.size is None else config.data.options.fit,
                typicality=typical_glimpses(model, training, config),
            )
            if len(validation) and METHODS[config.method].sees == "looks":
                looked = roll_out(agent, validation)
                agent.temperatures = fit_temperatures(looked.labels, looked.log_probabilities)
            if rank() == 0:
                save(agent, folder.path)
        except Stopped as stop:
            stop.signal = heard[0] if heard else 0
            raise
        except FileError as error:
            if not error.disk_full:
                raise
            raise InfogazeError(f"{error}; the last good checkpoint stands, make room and go on") from None
    return agent


def plan_of(config: RunConfig, model: GlimpseClassifier) -> Plan:
    """What the weights follow from."""
    settings, recipe, method = config.preset, config.recipe, METHODS[config.method]
    augmentation: Augmentation | None = recipe.augmentation
    if augmentation is not None:
        augmentation = replace(augmentation, flip=augmentation.flip and settings.horizontal_flip)
    objective = Objective(
        num_looks=min(settings.num_looks, model.grid.num_locations),
        num_classes=settings.model.num_classes,
        alpha=settings.alpha,
        beta=settings.beta,
        dropout=settings.dropout,
        num_samples=recipe.num_samples,
        num_entries=recipe.num_entries,
        kl_warmup=recipe.kl_warmup,
        some_unlabelled=config.num_labels is not None,
        more_looks=max(0, min(recipe.more_looks, model.grid.num_locations - settings.num_looks)),
    )
    return Plan(
        phases={number: method.phases[number - 1] for number in config.phases},
        recipe=recipe,
        learning_rates=settings.learning_rates,
        objective=objective,
        augmentation=augmentation,
        seed=config.seed,
    )


def fitted(settings: Preset, images: ImageSet, changes: Mapping[str, Any]) -> Preset:
    """The preset with the image size, channels and classes of the data, and these changes, which must fit them."""
    _, channels, height, width = images.train.images.shape
    of_data = {"height": height, "width": width, "channels": channels, "num_classes": len(images.classes)}
    return override(settings, {**changes, "model": {**changes.get("model", {}), **of_data}})


def require_own(method: str, sizes: Mapping[str, Any]) -> None:
    """Refuse a size that the method sets itself: it would be changed without a word."""
    fixed = METHODS[method].overrides
    for name, value in sizes.items():
        if name in fixed and fixed[name] != value:
            raise InfogazeError(f"model.{name} is {value}; the method {method} sets it to {fixed[name]}")


def begin(config: RunConfig) -> GlimpseClassifier:
    """The model that a run begins with: fresh, or with the weights of the folder it starts from."""
    sizes = config.preset.model
    model = build_for(config.method, sizes, config.seed)
    if config.start_from is None:
        return model
    source = load(config.start_from)
    assert source.origin is not None
    if source.origin.method == config.method and source.origin.config == sizes:
        return source.model
    ours, theirs = model.backbone.state_dict(), source.model.backbone.state_dict()
    same_shapes = {name: value.shape for name, value in ours.items()} == {
        name: value.shape for name, value in theirs.items()
    }
    # What no shape shows.
    unseen = ("residual_belief", "token_heads") if sizes.token_layers else ("residual_belief",)
    if not same_shapes or any(getattr(source.origin.config, name) != getattr(sizes, name) for name in unseen):
        raise InfogazeError(
            f"{config.start_from}: a model of other networks than {config.preset.name} by {config.method} on this data"
        )
    if config.phases[0] > 2:
        raise InfogazeError(
            f"{config.start_from}: a model by {source.origin.method}; phase {config.phases[0]} goes on from one by "
            f"{config.method}, of the same sizes"
        )
    model.backbone.load_state_dict(theirs)
    return model


def teacher_of(config: RunConfig, images: ImageSet, device: torch.device) -> Teacher | None:
    """What says of the complete training images what they are, if the run has such a teacher."""
    if config.teacher is None:
        return None
    agent = load(config.teacher, device)
    require_sees_whole(config.teacher, agent, "teacher")
    require_fit(config.teacher, agent, images, split="training")
    if device.type == "cuda" and world_size() == 1:
        compile_parts(agent.model)
    return lambda scenes: classified_whole(agent, scenes)


@torch.no_grad()
def typical_glimpses(model: GlimpseClassifier, split: Split, config: RunConfig) -> Typicality | None:
    """The features of training glimpses at random, from the first scenes of a shuffled split; None for a method that sees all at once."""
    if METHODS[config.method].sees == "everything":
        return None
    generator = torch.Generator().manual_seed(stream_seed(config.seed, "typicality"))
    chosen = torch.randperm(len(split), generator=generator)[:_TYPICAL_SCENES]
    grid, looks = model.grid, min(config.preset.num_looks, model.grid.num_locations)
    content = []
    for part in chosen.split(200):
        images = split.images[part].to(model.device)
        order = SceneNoise(scene_seeds(config.seed, len(part)), 0).uniform(grid.num_locations)
        where = grid.locations()[order.topk(looks).indices].to(model.device)  # [B, T, 2]
        content.append(model.backbone.features(normalise_pixels(extract(images, where, grid.glimpse_size))).cpu())
    return fit_typicality(torch.cat(content).float())


def phases_left(name: str, phases: Sequence[int]) -> str:
    """Words for the phases that a run of some of a method's phases leaves to another one; none where there are none."""
    left = [str(number) for number in range(phases[-1] + 1, len(METHODS[name].phases) + 1)]
    if not left:
        return ""
    return f"; phase {' and '.join(left)} of {name} not trained yet, see --start-from"


def _own_default(settings: Preset, source: str) -> float:
    """A folder of own pictures has a validation split whatever the preset."""
    return max(settings.val_fraction, 0.1) if source == "folder" else settings.val_fraction


def _doubts(config: RunConfig, model: GlimpseClassifier, images: int) -> list[str]:
    """What a user would rather know before training than after it."""
    doubts, grid = [], model.grid
    for number in config.phases:
        phase = METHODS[config.method].phases[number - 1]
        part = "full_image" if phase.sees_whole else f"phase{number}"
        # A method may give some of one phase's steps to the next, where they are not lost.
        steps = max(budget.num_steps(images) for budget in (phase.budget(config.recipe), getattr(config.recipe, part)))
        if steps < _FEW_STEPS and config.data.name in OWN_DATA:
            doubts.append(
                f"phase {number} has {steps} steps over {images} images, too few to learn much; --recipe own counts steps, "
                f"and --recipe.{part.replace('_', '-')}.steps sets them"
            )
    if grid.num_locations > MANY_LOCATIONS:
        better = suggest_sizes(grid.height, grid.width)
        advice = (
            f"--model.glimpse-size {better.glimpse_size} --model.stride {better.stride} makes {better.num_locations}"
        )
        if better.num_locations > MANY_LOCATIONS:
            advice = "--read.size HEIGHT WIDTH makes scenes smaller"
        doubts.append(
            f"{grid.num_locations} locations of {grid.glimpse_size} pixels on scenes of {grid.height}x{grid.width} are slow to "
            f"imagine; {advice}"
        )
    return doubts


def _tell_gain_against_random(agent: Agent, test: Split, *, method: str, screen: Display) -> None:
    """How looks chosen by the method do against looks at random, on test images that training never saw."""
    if METHODS[method].sees != "looks" or isinstance(agent.policy, RandomPolicy):
        return
    some = Split(test.images[:LARGEST], test.labels[:LARGEST])
    rows = {
        f"looks by {method}": accuracy(roll_out(agent, some).correct),
        "looks at random": accuracy(roll_out(agent.with_policy(RandomPolicy()), some).correct),
    }
    screen.say(f"test accuracy by look, %, {len(some)} images that training did not see")
    for name, curve in rows.items():
        screen.say(f"{name:<24}" + _cells(curve))


def _cells(curve: Estimate) -> str:
    halves = 50 * (curve.high - curve.low)
    return "".join(
        f"{100 * value:8.1f} ±{half:4.1f}" for value, half in zip(curve.value.tolist(), halves.tolist(), strict=True)
    )
