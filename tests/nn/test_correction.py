from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from infogaze import Backbone, Belief, GlimpseGrid, Model, build
from infogaze.methods.three_phases import FINETUNE, choose_by_gain, finetune
from infogaze.nn.correction import GainCorrection
from infogaze.nn.decoder import Decoder
from infogaze.nn.gain import (
    CRITERIA,
    Criterion,
    class_entropy,
    coherent_information,
    expected_information_gain,
    mutual_information,
)
from infogaze.nn.partial_vae import PartialVAE
from infogaze.nn.posterior import Posterior
from infogaze.training.phases import Batch, Objective, draw_noise
from tests.support.parts import normal
from tests.support.small_model import vae_of
from tests.support.tiny import CONFIG, WITH_CORRECTION

SIZE, PLACES = 6, 5


def _used(seed: int = 0) -> GainCorrection:
    """A correction in float64 with random weights, as if it had learned something."""
    correction = GainCorrection(SIZE, PLACES).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in correction.parameters():
            parameter.normal_(0.0, 0.8, generator=generator)
    return correction


def _plain_shares(correction: GainCorrection, hidden: Tensor) -> np.ndarray:
    """linear, LeakyReLU, LN, linear, sigmoid, of one belief, in numpy."""
    state = {name: value.double().numpy() for name, value in correction.state_dict().items()}
    h = state["head.0.weight"] @ hidden.double().numpy() + state["head.0.bias"]
    h = np.where(h > 0, h, 0.01 * h)
    h = (h - h.mean()) / np.sqrt(h.var() + 1e-5) * state["head.2.weight"] + state["head.2.bias"]
    return 1 / (1 + np.exp(-(state["head.3.weight"] @ h + state["head.3.bias"])))


@given(st.integers(0, 2**31))
def test_the_correction_is_a_slope_times_the_gain_and_a_share_of_the_entropy(seed: int) -> None:
    correction = _used(seed)
    gain, hidden = normal(3, PLACES, seed=seed + 1).abs(), normal(3, SIZE, seed=seed + 2)
    uncertain = normal(3, seed=seed + 3).abs()
    corrected = correction(gain, hidden, uncertain).detach().numpy()
    for scene in range(3):
        shares = _plain_shares(correction, hidden[scene])
        expected = correction.slope.item() * gain[scene].numpy() + shares * uncertain[scene].item()
        np.testing.assert_allclose(corrected[scene], expected, rtol=1e-9, atol=1e-9)


def test_one_place_of_a_map_is_that_place_of_the_map() -> None:
    correction = _used()
    gain, hidden, uncertain = normal(4, 3, PLACES), normal(4, 3, SIZE, seed=1), normal(4, 3, seed=2).abs()
    whole = correction(gain, hidden, uncertain)
    places = torch.randint(0, PLACES, (4, 3), generator=torch.Generator().manual_seed(0))
    at_places = gain.gather(2, places[..., None]).squeeze(2)
    found = correction.at(places, gain=at_places, hidden=hidden, entropy=uncertain)
    for look in range(4):
        for scene in range(3):
            torch.testing.assert_close(found[look, scene], whole[look, scene, places[look, scene]])


def test_before_it_has_learned_it_adds_the_same_to_every_place() -> None:
    gain, hidden, uncertain = normal(50, PLACES).abs(), normal(50, SIZE, seed=1), normal(50, seed=2).abs()
    corrected = GainCorrection(SIZE, PLACES).double()(gain, hidden, uncertain)
    assert torch.equal(corrected.argmax(1), gain.argmax(1))
    added = uncertain / (1 + math.exp(3))
    torch.testing.assert_close(corrected - gain, added[:, None].expand_as(gain))


def test_shares_differ_by_place_and_by_belief_once_it_has_learned() -> None:
    correction = _used()
    shares = correction(torch.zeros(20, PLACES).double(), normal(20, SIZE), torch.ones(20).double())
    assert shares.std(1).min() > 0.01
    assert len(shares.argsort(1).unique(dim=0)) > 1, "the best places are not the same for all beliefs"


def test_where_nothing_is_left_to_know_only_the_imagined_gain_counts() -> None:
    correction = _used()
    gain = normal(3, PLACES)
    corrected = correction(gain, normal(3, SIZE, seed=1), torch.zeros(3).double())
    torch.testing.assert_close(corrected, correction.slope * gain)


def test_entropy_is_in_nats_and_a_label_ruled_out_has_none() -> None:
    log_probabilities = torch.tensor([[0.25, 0.75, 0.0], [1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]]).log()
    by_hand = [-(0.25 * math.log(0.25) + 0.75 * math.log(0.75)), 0.0, math.log(3)]
    torch.testing.assert_close(class_entropy(log_probabilities), torch.tensor(by_hand))


def _model_and_belief(corrected: bool) -> tuple[Model, Belief, Tensor]:
    """A model in float64 whose gains are not faint, a belief of three scenes, and noise for four imagined scenes."""
    model = build(WITH_CORRECTION if corrected else CONFIG).double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.5, generator=generator)
    belief = Belief(normal(3, CONFIG.belief_size), torch.zeros(3, 0).double())
    return model, belief, normal(3, 4, CONFIG.latent_size, seed=1)


every_criterion = pytest.mark.parametrize("criterion", CRITERIA.values(), ids=CRITERIA.keys())


@every_criterion
@torch.no_grad()
def test_without_a_correction_a_gain_is_as_imagined(criterion: Criterion) -> None:
    model, belief, noise = _model_and_belief(corrected=False)
    assert model.correction is None
    imagined = model.imagined_gain(belief, 4, noise=noise, criterion=criterion)
    torch.testing.assert_close(model.gain(belief, 4, noise=noise, criterion=criterion), imagined)


@every_criterion
@torch.no_grad()
def test_of_all_criteria_those_that_expect_an_information_gain_alone_are_corrected(criterion: Criterion) -> None:
    model, belief, noise = _model_and_belief(corrected=True)
    gain = model.gain(belief, 4, noise=noise, criterion=criterion)
    imagined = model.imagined_gain(belief, 4, noise=noise, criterion=criterion)
    of_information = (expected_information_gain, mutual_information, coherent_information)
    assert torch.allclose(gain, imagined) == (criterion not in of_information)


@torch.no_grad()
def test_a_models_gain_is_the_imagined_one_corrected_by_what_it_believes() -> None:
    model, belief, noise = _model_and_belief(corrected=True)
    assert model.correction is not None
    gain, imagined = model.gain(belief, 4, noise=noise), model.imagined_gain(belief, 4, noise=noise)
    probabilities = model.backbone.classify(belief).exp().double().numpy()
    for scene in range(3):
        uncertain = -(probabilities[scene] * np.log(probabilities[scene])).sum()
        shares = _plain_shares(model.correction, belief.hidden[scene])
        expected = model.correction.slope.item() * imagined[scene].numpy() + shares * uncertain
        np.testing.assert_allclose(gain[scene].numpy(), expected, rtol=1e-9, atol=1e-9)
    assert not torch.equal(gain.argmax(1), imagined.argmax(1)), "the correction changes where to look"


@torch.no_grad()
def test_imagined_gains_are_those_of_the_model_without_a_correction() -> None:
    (model, belief, noise), (plain, _, _) = _model_and_belief(corrected=True), _model_and_belief(corrected=False)
    plain.load_state_dict(
        {name: value for name, value in model.state_dict().items() if not name.startswith("correction.")}
    )
    torch.testing.assert_close(model.imagined_gain(belief, 4, noise=noise), plain.gain(belief, 4, noise=noise))


def test_a_seed_makes_the_same_networks_with_a_correction_and_without() -> None:
    with_it, without = build(WITH_CORRECTION, 7).state_dict(), build(CONFIG, 7).state_dict()
    assert {name for name in with_it if name not in without} == {n for n in with_it if n.startswith("correction.")}
    assert all(torch.equal(value, with_it[name]) for name, value in without.items())


# A world of four places, of which one tells the label, bright or dark, and the others are grey. The decoder imagines grey everywhere,
# so that by equation 7 no place is worth a look.
TELLS = 2
GRID = GlimpseGrid(height=4, width=4, glimpse_size=2, stride=2)


class OneTellingPlace(Backbone):
    """Sees brightness, remembers the sum of it, and is all but certain of the label when there is any."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(()))

    def features(self, glimpses: Tensor) -> Tensor:
        return glimpses.mean((-3, -2, -1))[..., None]

    def start(self, batch: int) -> Belief:
        return Belief(torch.zeros(batch, 4), torch.zeros(batch, 0))

    def update(self, belief: Belief, content: Tensor, locations: Tensor) -> Belief:
        return Belief(belief.hidden + content, belief.memory)

    def classify(self, belief: Belief) -> Tensor:
        evidence = 9 * belief.hidden[..., :1] + 0 * self.unused
        return torch.cat([-evidence, evidence], -1).log_softmax(-1)


def _told(model: Model, count: int, *, objective: Objective, generator: torch.Generator, progress: float) -> Batch:
    labels = torch.randint(0, 2, (count,), generator=generator)
    images = torch.zeros(count, 1, GRID.height, GRID.width)
    row, col = GRID.locations()[TELLS].tolist()
    images[:, :, row : row + 2, col : col + 2] = (2.0 * labels - 1).view(-1, 1, 1, 1)
    noise = draw_noise(FINETUNE.noise(model, objective), count, generator)
    return Batch(images=images, labels=labels, noise=noise, progress=torch.tensor(progress))


def test_phase_3_teaches_the_correction_which_place_tells_the_label() -> None:
    torch.manual_seed(0)
    model = Model(
        GRID,
        OneTellingPlace(),
        imagination=PartialVAE(Posterior(belief_size=4, latent_size=2, context_size=1, layers=0), Decoder(2, 1, GRID)),
        correction=GainCorrection(4, 4),
    )
    assert model.correction is not None
    for parameter in vae_of(model).decoder.last.parameters():
        parameter.data.zero_()
    objective, steps = Objective(num_looks=3, num_classes=3, alpha=0.0, beta=0.0, dropout=0.0), 100
    optimiser, generator = torch.optim.Adam(model.correction.parameters(), 0.1), torch.Generator().manual_seed(0)
    for step in range(steps):
        batch = _told(model, 32, objective=objective, generator=generator, progress=step / steps)
        with torch.no_grad():
            looks = choose_by_gain(model, batch, objective)
        loss = finetune(model, batch, objective=objective, looks=looks).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        unsure, sure = model.backbone.start(1), Belief(torch.ones(1, 4), torch.zeros(1, 0))
        noise = torch.zeros(1, 1, 2)
        gain = model.gain(unsure, 1, noise=noise)[0]
        assert model.imagined_gain(unsure, 1, noise=noise).abs().max() < 1e-5
        assert gain[TELLS] == pytest.approx(math.log(2), abs=0.15), "all there is to know"
        assert max(value for place, value in enumerate(gain.tolist()) if place != TELLS) < 0.15
        assert model.gain(sure, 1, noise=noise).abs().max() < 0.01, "and nothing once it is known"
