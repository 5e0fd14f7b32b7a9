from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from infogaze.training.ema import EMA, floats

GOOD, BAD = torch.tensor(1.0), torch.tensor(0.0)


def _model() -> nn.Module:
    """In float64; it has running statistics, and a count that is no float."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).double()


@torch.no_grad()
def _moved(model: nn.Module, step: int) -> None:
    """Stands for a training step: every weight and statistic is another one, and the batches are counted."""
    generator = torch.Generator().manual_seed(step)
    for value in floats(model).values():
        value.add_(torch.randn(value.shape, generator=generator, dtype=value.dtype))
    model.get_buffer("1.num_batches_tracked").add_(1)


def _copies(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.999])
def test_the_average_is_that_of_a_plain_loop_in_float64(decay: float) -> None:
    model = _model()
    ema, expected = EMA(model, decay), {name: value.clone() for name, value in floats(model).items()}
    for step in range(40):
        _moved(model, step)
        ema.update(GOOD)
        kept = min(decay, (1 + step) / (10 + step))  # short at first
        for name, value in floats(model).items():
            expected[name] = kept * expected[name] + (1 - kept) * value
    assert ema.values.keys() == expected.keys()
    for name, value in ema.values.items():
        # The decay is kept in float32.
        torch.testing.assert_close(value, expected[name], rtol=1e-5, atol=1e-5)
    assert float(ema.steps) == 40


def test_statistics_are_averaged_and_counts_are_not() -> None:
    names = set(EMA(_model(), 0.9).values)
    assert {"1.running_mean", "1.running_var", "0.weight"} <= names
    assert "1.num_batches_tracked" not in names


def test_a_skipped_step_changes_nothing() -> None:
    model = _model()
    ema = EMA(model, 0.9)
    _moved(model, 0)
    ema.update(GOOD)
    before, steps = {name: value.clone() for name, value in ema.values.items()}, ema.steps.clone()
    _moved(model, 1)
    ema.update(BAD)
    assert all(torch.equal(value, before[name]) for name, value in ema.values.items())
    assert torch.equal(ema.steps, steps)


def test_a_decay_of_zero_keeps_no_average_and_the_models_own_weights_stand() -> None:
    model = _model()
    ema = EMA(model, 0.0)
    _moved(model, 0)
    ema.update(GOOD)
    assert not ema.values
    own = _copies(model)
    with ema.applied():
        assert all(torch.equal(value, own[name]) for name, value in model.state_dict().items())
    ema.copy_to_model()
    assert all(torch.equal(value, own[name]) for name, value in model.state_dict().items())


def test_within_the_block_the_model_has_the_average_and_afterwards_its_own_weights() -> None:
    model = _model()
    ema = EMA(model, 0.9)
    _moved(model, 0)
    ema.update(GOOD)
    own = _copies(model)
    with ema.applied():
        assert all(torch.equal(value, ema.values[name]) for name, value in floats(model).items())
        assert not torch.allclose(model.state_dict()["0.weight"], own["0.weight"])
    assert all(torch.equal(value, own[name]) for name, value in model.state_dict().items())
    with pytest.raises(ZeroDivisionError), ema.applied():
        _ = 1 / 0
    assert all(torch.equal(value, own[name]) for name, value in model.state_dict().items()), "after an error too"


def test_the_model_can_be_given_the_average_for_good() -> None:
    model = _model()
    ema = EMA(model, 0.9)
    _moved(model, 0)
    ema.update(GOOD)
    ema.copy_to_model()
    assert all(torch.equal(value, ema.values[name]) for name, value in floats(model).items())
    value = floats(model)["0.weight"].clone()
    _moved(model, 1)
    assert torch.equal(ema.values["0.weight"], value), "the average is a copy, not the weights themselves"
