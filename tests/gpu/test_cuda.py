"""What is fast on a GPU must be the same mathematics: every compiled or captured path against a plain one in float64."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import jaxtyping
import pytest
import torch
from torch import Tensor, nn

from infogaze.data.augmentation import Augmentation
from infogaze.data.feed import Feed
from infogaze.data.registry import load_set
from infogaze.data.sets import Split
from infogaze.evaluation.rollouts import roll_out
from infogaze.gaze.captured import CapturedPolicy
from infogaze.gaze.looking import take_look
from infogaze.gaze.policies import GainPolicy
from infogaze.gaze.sensor import EpisodeSensor
from infogaze.gaze.stopping import Gain
from infogaze.methods import dictionary
from infogaze.methods.three_phases import PHASES
from infogaze.models import load
from infogaze.nn.compilation import compile_parts
from infogaze.nn.config import ModelConfig
from infogaze.nn.model import GlimpseClassifier, Model, build
from infogaze.presets import preset
from infogaze.rng import SceneNoise, scene_seeds
from infogaze.training.examples import Examples
from infogaze.training.loop import Stopped
from infogaze.training.phases import Objective, Phase
from infogaze.training.plan import Callbacks
from infogaze.training.recipe import Recipe
from infogaze.training.step import TrainStep
from tests.support.methods import outcome
from tests.support.paths import ROOT
from tests.support.small_run import RECIPE, epochs, run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("default"),  # torch's compiler warns of what it does itself
]

SETTINGS = preset("digits")
SIZES = replace(SETTINGS.model, dictionary_entries=0)
WITH_DICTIONARY = SETTINGS.model
WITH_TOKENS = replace(WITH_DICTIONARY, token_layers=2, token_heads=4)
OBJECTIVE = Objective(
    num_looks=SETTINGS.num_looks,
    num_classes=10,
    alpha=SETTINGS.alpha,
    beta=SETTINGS.beta,
    dropout=SETTINGS.dropout,
    more_looks=9,
)
AUGMENTATION = Augmentation(flip=False)
FAULTY = Augmentation(flip=False, exposure=1.0, blur=1.0, noise=0.1, displacement=1)
BATCH, STEPS = 64, 8
RATES = (1e-3, 1e-3, 1e-5)
"""In phase 3 a choice between two all but equal places falls differently in float32; small steps keep that from adding up."""


@pytest.fixture(autouse=True)
def _full_float32() -> None:
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.fixture(autouse=True)
def _shapes_not_checked() -> Iterator[None]:
    """The compiler cannot follow a check of shapes; the same functions are checked on the CPU."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


def some_scenes(count: int = BATCH * STEPS) -> Split:
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (count, 1, 32, 32), generator=generator).to(torch.uint8)
    return Split(images, torch.randint(0, 10, (count,), generator=generator)).to("cuda")


def step_of(model: GlimpseClassifier, phase: Phase, recipe: Recipe, augmentation: Augmentation | None) -> TrainStep:
    return TrainStep(
        model,
        phase,
        objective=OBJECTIVE,
        recipe=recipe,
        augmentation=augmentation,
        batch_size=BATCH,
        seed=7,
        teacher=by_brightness if recipe.mixup else None,
    )


def plain_steps(
    model: Model, phase: Phase, split: Split, *, rate: float, recipe: Recipe, augmentation: Augmentation
) -> list[float]:
    """Training as it is defined, in float64: no graph, no compiled part, torch's plain AdamW; the losses."""
    generator = torch.Generator("cuda").manual_seed(7)
    model.requires_grad_(False)
    trained = [parameter.requires_grad_() for parameter in phase.trained(model)]
    optimiser = torch.optim.AdamW(
        trained, rate, betas=RECIPE.betas, weight_decay=RECIPE.weight_decay, foreach=False, fused=False
    )
    examples = Examples(
        recipe=recipe,
        augmentation=augmentation,
        noise=phase.noise(model, OBJECTIVE),
        batch_size=BATCH,
        grid=model.grid,
        num_classes=10,
        mixes=phase.mixes,
        more_looks=OBJECTIVE.more_looks,
        teacher=by_brightness if recipe.mixup else None,
        generator=generator,
    )
    losses = []
    for images, labels in zip(split.images.split(BATCH), split.labels.split(BATCH), strict=True):
        batch = examples.batch(images, labels, slice(0, BATCH), progress=torch.zeros((), device="cuda"))
        batch = replace(batch, images=batch.images.double())
        optimiser.zero_grad()
        loss = outcome(phase, model, batch, OBJECTIVE).loss
        loss.backward()
        nn.utils.clip_grad_norm_(trained, RECIPE.grad_clip, foreach=False)
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


def by_brightness(images: Tensor) -> Tensor:
    """A teacher that needs no training."""
    levels = torch.arange(10, device=images.device) / 10.0 - 0.5
    return (-(images.mean((1, 2, 3))[:, None] - levels).square()).log_softmax(-1)


@pytest.mark.parametrize(
    ("phase", "index", "sizes"),
    [
        *((phase, index, SIZES) for index, phase in enumerate(PHASES)),
        (dictionary.IMAGINE, 1, WITH_DICTIONARY),
        (dictionary.FINETUNE, 2, WITH_DICTIONARY),
        (PHASES[0], 0, WITH_TOKENS),
        (dictionary.IMAGINE, 1, WITH_TOKENS),
        (dictionary.FINETUNE, 2, WITH_TOKENS),
    ],
)
@pytest.mark.parametrize("everything", [False, True], ids=["plain scenes", "mixed, taught, faulty"])
def test_captured_and_compiled_steps_are_the_plain_ones(
    phase: Phase, index: int, sizes: ModelConfig, everything: bool
) -> None:
    begin = build(sizes, 3).to("cuda")
    plain, fast = copy.deepcopy(begin).double(), copy.deepcopy(begin)
    split, recipe, augmentation = some_scenes(), replace(RECIPE, ema_decay=0.0), AUGMENTATION
    if everything:
        recipe, augmentation = replace(recipe, mixup=0.5), FAULTY
    expected = plain_steps(plain, phase, split, rate=RATES[index], recipe=recipe, augmentation=augmentation)
    step, losses = step_of(fast, phase, recipe, augmentation), []
    for images, labels in zip(split.images.split(BATCH), split.labels.split(BATCH), strict=True):
        step(images, labels, learning_rate=RATES[index])
        losses.append(step.state.meters.read().loss)
    torch.testing.assert_close(
        torch.tensor(losses), torch.tensor(expected), rtol=1e-2 if index == 2 else 2e-3, atol=2e-3
    )
    moved, apart = 0.0, 0.0
    for name, value in plain.named_parameters():
        ours, old = dict(fast.named_parameters())[name], dict(begin.named_parameters())[name]
        moved += float((value - old).detach().square().sum())
        apart += float((value - ours).detach().square().sum())
    # Adam takes a whole step along a gradient that is all but zero, whose sign is then rounding's.
    assert (apart / moved) ** 0.5 < 0.2


@pytest.mark.parametrize("sizes", [SIZES, WITH_DICTIONARY, replace(SIZES, token_layers=2, token_heads=4), WITH_TOKENS])
def test_a_captured_decision_is_the_plain_one(sizes: ModelConfig) -> None:
    model = build(sizes, 3).eval()
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.2, generator=torch.Generator().manual_seed(5))
    plain, fast = copy.deepcopy(model).double(), model.to("cuda")
    compile_parts(fast)
    captured = CapturedPolicy(GainPolicy(20))
    allowed = torch.ones(16, model.grid.num_locations, dtype=torch.bool)
    allowed[:, ::5] = False
    for look in (1, 2, 5):
        glimpses = torch.rand(16, 1, 8, 8, generator=torch.Generator().manual_seed(look))
        where = model.grid.locations()[:16]
        seeds = scene_seeds(look, 16)
        with torch.no_grad():
            belief = plain.backbone.update(plain.backbone.start(16), plain.backbone.features(glimpses.double()), where)
            there = fast.backbone.update(fast.backbone.start(16), fast.backbone.features(glimpses.cuda()), where.cuda())
            expected = GainPolicy(20)(plain, belief, candidates=allowed, noise=SceneNoise(seeds, look))
            noise = SceneNoise(seeds.cuda(), look)
            choice = captured(fast, there, candidates=allowed.cuda(), noise=noise)
        torch.testing.assert_close(choice.gain.cpu().double(), expected.gain, rtol=1e-3, atol=1e-5)
        # Of two places as good as each other, rounding may choose either.
        there_gain = expected.gain[model.grid.at(choice.location.cpu())]
        best = expected.gain.masked_fill(~allowed, -torch.inf).amax(1)
        assert bool((there_gain >= best - 1e-5 - 1e-3 * best.abs()).all())
        assert bool(allowed[model.grid.at(choice.location.cpu())].all())


def test_a_run_that_was_stopped_goes_on_with_the_same_losses(tmp_path: Path) -> None:
    # Not bit by bit: a captured step may take other kernels than the plain ones it begins with.
    recipe = replace(RECIPE, phase3=epochs(2, learning_rate=RATES[2]))
    run(tmp_path / "straight", recipe, device="cuda")
    expected = losses(tmp_path / "straight")
    for moment in (4, 21, 33):
        folder, steps = tmp_path / f"stopped at {moment}", count(1)
        with pytest.raises(Stopped):
            run(folder, recipe, callbacks=Callbacks(should_stop=lambda: next(steps) == moment), device="cuda")  # noqa: B023
        run(folder, recipe, device="cuda")
        found = losses(folder)
        assert list(found) == list(expected)
        for where, loss in expected.items():
            assert found[where] == pytest.approx(loss, rel=5e-2 if where[0] == "finetune" else 5e-3), (moment, where)


def losses(folder: Path) -> dict[tuple[str, int], float]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {(line["name"], line["step"]): line["loss"] for line in lines}


def test_a_set_that_is_streamed_gives_the_batches_of_one_that_is_resident() -> None:
    split = some_scenes().to("cpu")
    resident, streamed = Feed(split, "cuda"), Feed(split, "cuda", budget=1000)
    assert resident.resident
    assert not streamed.resident
    pairs = zip(resident.batches(2, BATCH, seed=4), streamed.batches(2, BATCH, seed=4), strict=True)
    kept: list[tuple[Tensor, Tensor]] = []
    for (images, labels), (sent, told) in pairs:
        torch.cuda._sleep(10_000_000)  # a device that is behind must not see a buffer that is filled anew
        assert sent.is_cuda
        kept.append((images, sent.clone()))
        assert torch.equal(labels, told)
    assert all(torch.equal(images, sent) for images, sent in kept)


PROCESS = """
import sys, torch
from torch import distributed
from infogaze.nn.model import build
from infogaze.methods.three_phases import CLASSIFY
from infogaze.training.distributed import own_part
from tests.gpu.test_cuda import BATCH, RATES, SIZES, some_scenes, step_of
from tests.support.small_run import RECIPE
rank, store, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
torch.backends.cudnn.allow_tf32 = False
distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(build(SIZES, 3).to("cuda"))
step = step_of(model, CLASSIFY, RECIPE, None)
split, losses = some_scenes(), []
for images, labels in zip(split.images.split(BATCH), split.labels.split(BATCH)):
    step(images[own_part(BATCH)], labels[own_part(BATCH)], learning_rate=RATES[0])
    losses.append(step.state.meters.read().loss)
if rank == 0:
    torch.save(torch.tensor(losses), out)
"""


def test_two_processes_with_synchronised_batch_norm_lose_as_one_does(tmp_path: Path) -> None:
    split, expected = some_scenes(), []
    step = step_of(build(SIZES, 3).to("cuda"), PHASES[0], RECIPE, None)
    for images, labels in zip(split.images.split(BATCH), split.labels.split(BATCH), strict=True):
        step(images, labels, learning_rate=RATES[0])
        expected.append(step.state.meters.read().loss)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src"), *sys.path])}
    both = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(rank), str(tmp_path / "store"), str(tmp_path / "losses")],
            env=environment,
        )
        for rank in range(2)
    ]
    assert [process.wait(300) for process in both] == [0, 0]
    torch.testing.assert_close(
        torch.load(tmp_path / "losses", weights_only=True), torch.tensor(expected), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("gain", ["exact", "distilled"])
def test_no_look_of_a_compiled_model_waits_for_the_device(gain: Gain) -> None:
    agent = load("digits", "cuda", gain=gain, compile=True)
    images = load_set("digits").test.images[:BATCH].cuda()
    agent.run(EpisodeSensor(images, SIZES.glimpse_size), batch=BATCH)  # compiled and captured
    sensor, episode = EpisodeSensor(images, SIZES.glimpse_size), agent.episode(BATCH)
    take_look(episode, sensor.look)
    torch.cuda.set_sync_debug_mode("error")
    try:
        while not episode.done:
            take_look(episode, sensor.look)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(episode.history) == agent.num_looks


def test_the_compiled_exact_pass_is_nearly_the_plain_one() -> None:
    test = load_set("digits").test
    plain, fast = (roll_out(load("digits", "cuda", compile=compile), test, batch_size=256) for compile in (False, True))
    assert torch.equal(plain.labels, fast.labels)
    assert torch.equal(plain.locations[:, 0], fast.locations[:, 0])
    assert (plain.correct.double().mean(0) - fast.correct.double().mean(0)).abs().max() < 0.03, "600 drawings"
