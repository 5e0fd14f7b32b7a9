from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from infogaze import METHODS
from infogaze.methods.three_phases import CLASSIFY, FINETUNE
from infogaze.training.phases import NoiseSpec, Phase, draw_noise, normal, uniform
from tests.support.methods import LOOKS, OBJECTIVE, batch_for, made, outcome
from tests.support.small_model import model
from tests.support.tiny import CONFIG

SPECS = {"first": uniform(3), "second": normal(2, 5), "third": uniform()}


def _draw(specs: dict[str, NoiseSpec], scenes: int = 4, seed: int = 0) -> dict[str, torch.Tensor]:
    return draw_noise(specs, scenes, torch.Generator().manual_seed(seed))


def test_what_is_declared_is_drawn_and_nothing_else() -> None:
    drawn = _draw(SPECS)
    assert {name: tuple(numbers.shape) for name, numbers in drawn.items()} == {
        "first": (4, 3),
        "second": (4, 2, 5),
        "third": (4,),
    }
    assert _draw({}) == {}


def test_numbers_are_drawn_in_the_order_of_their_declaration() -> None:
    generator = torch.Generator().manual_seed(0)
    expected = [
        torch.rand(4, 3, generator=generator),
        torch.randn(4, 2, 5, generator=generator),
        torch.rand(4, generator=generator),
    ]
    for numbers, known in zip(_draw(SPECS).values(), expected, strict=True):
        assert torch.equal(numbers, known)
    reversed_specs = dict(reversed(SPECS.items()))
    assert list(_draw(reversed_specs)) == list(reversed_specs)
    assert not torch.equal(_draw(reversed_specs)["first"], _draw(SPECS)["first"])


def test_numbers_are_uniform_or_normal_as_declared() -> None:
    drawn = _draw({"uniform": uniform(50), "normal": normal(50)}, scenes=1000)
    # 50 000 numbers: five standard errors of a mean and of a variance.
    flat, bell = drawn["uniform"].double(), drawn["normal"].double()
    assert 0.0 <= float(flat.min()) < float(flat.max()) < 1.0
    assert float(flat.mean()) == pytest.approx(0.5, abs=5 * (1 / 12 / 50_000) ** 0.5)
    assert float(bell.mean()) == pytest.approx(0.0, abs=5 / 50_000**0.5)
    assert float(bell.var()) == pytest.approx(1.0, abs=5 * (2 / 50_000) ** 0.5)


def test_phase_1_declares_no_numbers_it_does_not_need() -> None:
    assert CLASSIFY.noise(model(), OBJECTIVE) == {
        "anywhere": uniform(LOOKS, 2),
        "dropout": uniform(LOOKS, CONFIG.belief_size),
    }


def test_phase_3_declares_as_many_imagined_scenes_as_it_is_told() -> None:
    specs = FINETUNE.noise(model(), replace(OBJECTIVE, num_samples=3))
    assert specs["imagined"] == normal(LOOKS, 3, CONFIG.latent_size)
    assert specs["epsilon"] == uniform(LOOKS)


@pytest.mark.parametrize(
    ("method", "phase"), [pytest.param(name, phase, id=f"{name}-{phase.name}") for name in METHODS for phase in METHODS[name].phases]
)  # fmt: skip
def test_a_phase_uses_all_numbers_that_it_declares(method: str, phase: Phase) -> None:
    """What is declared and not used would be drawn in vain, at every step."""
    net, used = made(method), set()

    class Watched(dict[str, torch.Tensor]):
        def __getitem__(self, name: str) -> torch.Tensor:
            used.add(name)
            return super().__getitem__(name)

    batch = batch_for(phase, net)
    outcome(phase, net, replace(batch, noise=Watched(batch.noise)))
    never_explore = {"epsilon"} if method in ("paper", "gaussian", "attention", "dictionary") else set()
    assert used == set(batch.noise) - never_explore
