from __future__ import annotations

import pytest
import torch
from sklearn.covariance import LedoitWolf
from torch import Tensor

from infogaze.nn.typicality import FEWEST, Typicality, fit_typicality
from tests.support.parts import normal

SCENES, LOOKS, SIZE = 400, 3, 5


def _training(seed: int = 0, scenes: int = SCENES) -> Tensor:
    """Features that are correlated, far from zero and of different spreads."""
    spreads = torch.tensor([5.0, 1.0, 0.5, 3.0, 0.2]).double()
    mixing = spreads[:, None] * (torch.eye(SIZE) + 0.5 * normal(SIZE, SIZE, seed=99))
    return normal(scenes, LOOKS, SIZE, seed=seed) @ mixing.T + 3.0 * normal(SIZE, seed=98)


def _fit(content: Tensor, quantile: float = 0.999) -> Typicality:
    fitted = fit_typicality(content, quantile)
    assert fitted is not None
    return fitted


def test_too_few_scenes_tell_nothing() -> None:
    assert fit_typicality(_training(scenes=FEWEST - 1)) is None
    assert fit_typicality(_training(scenes=FEWEST)) is not None


@pytest.mark.parametrize("scenes", [FEWEST, 4 * FEWEST])
def test_hardly_any_other_scene_like_those_of_training_is_out_of_distribution(scenes: int) -> None:
    # Many features for few scenes: statistics that were held to their own scenes would call most others unusual.
    mixing = normal(40, 40, seed=3) * torch.linspace(0.05, 2.0, 40).double()
    training, others = (normal(count, 5, 40, seed=seed) @ mixing for count, seed in ((scenes, 4), (1000, 5)))
    fitted = _fit(training)
    assert float((fitted.score(others).mean(1) > fitted.threshold).double().mean()) < 0.05


def test_the_score_is_one_on_average_over_what_it_was_fitted_on() -> None:
    scores = _fit(_training()).score(_training())
    assert scores.shape == (SCENES, LOOKS)
    assert float(scores.mean()) == pytest.approx(1.0, abs=0.15)


def test_the_score_is_the_squared_mahalanobis_distance_over_the_number_of_features() -> None:
    content = _training()
    flat = content.flatten(0, 1)
    standardised = ((flat - flat.mean(0)) / flat.std(0)).numpy()
    oracle = LedoitWolf(assume_centered=True).fit(standardised)
    distance = torch.from_numpy(oracle.mahalanobis(standardised)).view(SCENES, LOOKS)
    torch.testing.assert_close(_fit(content).score(content).double(), distance / SIZE, rtol=1e-3, atol=1e-3)


def test_others_like_those_of_training_have_the_same_scores_and_noise_has_larger_ones() -> None:
    fitted = _fit(_training())
    assert float(fitted.score(_training(seed=1)).mean()) == pytest.approx(1.0, abs=0.2)
    # As loud as training in every feature, but without its correlations.
    flat = _training().flatten(0, 1)
    noise = flat.mean(0) + flat.std(0) * normal(200, LOOKS, SIZE, seed=2)
    assert float(fitted.score(noise).mean()) > 2.0


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.999])
def test_so_many_scenes_of_training_have_a_mean_score_below_the_threshold(quantile: float) -> None:
    content = _training()
    fitted = _fit(content, quantile)
    below = (fitted.score(content).mean(1) <= fitted.threshold).double().mean()
    assert float(below) == pytest.approx(quantile, abs=0.03)


def test_features_that_never_vary_are_told_apart_too() -> None:
    content = _training()
    content[..., 2] = 7.0
    fitted = _fit(content)
    assert fitted.score(content).isfinite().all()
    changed = content.clone()
    changed[..., 2] = 8.0
    assert float(fitted.score(changed).min()) > 100 * fitted.threshold


def test_features_of_any_float_type_are_scored_in_float32() -> None:
    fitted, content = _fit(normal(SCENES, LOOKS, SIZE)), normal(4, SIZE, seed=1)
    assert fitted.score(content).dtype == torch.float32
    half = fitted.score(content.bfloat16())
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, fitted.score(content), rtol=0.1, atol=0.1)
