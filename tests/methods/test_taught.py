"""Training with scenes that are mixed, taught by a teacher, seen through a faulty sensor, and looked at beyond the budget."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from infogaze import METHODS
from infogaze.data.augmentation import Augmentation
from infogaze.training.loop import Stopped
from infogaze.training.plan import Callbacks
from tests.support.small_run import RECIPE, epochs, run
from tests.support.tiny import CONFIG, PRESET_SIZES, TOKEN_SIZES

EVERYTHING = replace(
    RECIPE, phase1=epochs(1), phase2=epochs(1), phase3=epochs(1), full_image=epochs(1), mixup=0.5, more_looks=4, batch_norm_images=32,
    augmentation=Augmentation(flip=False, exposure=1.0, blur=1.0, noise=0.1, displacement=1),
)  # fmt: skip


def by_brightness(images: Tensor) -> Tensor:
    """A teacher that is right about the scenes of the small run."""
    levels = torch.tensor([0.0, 100.0, 200.0]) / 127.5 - 0.9
    return -8.0 * (images.mean((1, 2, 3))[:, None] - levels).square().log_softmax(-1)


@pytest.mark.parametrize("sizes", [PRESET_SIZES, TOKEN_SIZES], ids=["vector", "tokens"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_with_all_of_it(method: str, sizes: object, tmp_path: Path) -> None:
    if sizes is TOKEN_SIZES and method in {"attention", "cnn"}:
        return  # another R, and none
    model = run(tmp_path, EVERYTHING, method=method, sizes=sizes, teacher=by_brightness)  # type: ignore[arg-type]
    assert all(bool(value.isfinite().all()) for value in model.state_dict().values())
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert not any(line["skipped"] for line in lines)
    assert {line["phase"] for line in lines} == set(range(1, len(METHODS[method].phases) + 1))


def test_a_run_with_all_of_it_goes_on_bit_for_bit(tmp_path: Path) -> None:
    straight = run(tmp_path / "straight", EVERYTHING, teacher=by_brightness)
    asked = iter(range(1, 1000))
    with pytest.raises(Stopped):
        run(
            tmp_path / "run",
            EVERYTHING,
            teacher=by_brightness,
            callbacks=Callbacks(should_stop=lambda: next(asked) == 14),
        )
    resumed = run(tmp_path / "run", EVERYTHING, teacher=by_brightness)
    for name, value in straight.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name


def test_what_a_teacher_says_is_learned(tmp_path: Path) -> None:
    def wrong(images: Tensor) -> Tensor:
        return by_brightness(images).roll(1, 1)

    recipe = replace(RECIPE, phase1=epochs(12), teacher_weight=1.0, augmentation=None)
    learned = {}
    for name, teacher in (("right", by_brightness), ("wrong", wrong)):
        run(tmp_path / name, recipe, method="random", teacher=teacher)
        lines = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        learned[name] = lines[-1]["accuracy"][-1]
    assert learned["right"] > 0.8
    assert learned["wrong"] < 0.2
    assert CONFIG.num_classes == 3
