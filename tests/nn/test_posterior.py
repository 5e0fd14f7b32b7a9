from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from infogaze.nn.posterior import ActNorm, AutoregressiveSpline, FlowLayer, MaskedLinear, Posterior, prior_log_prob

BELIEF, CONTEXT = 6, 5

# Flow layers, latent size, bins.
SHAPES = [(0, 1, 5), (0, 4, 5), (1, 1, 2), (1, 2, 8), (2, 1, 5), (2, 3, 3), (4, 2, 5), (4, 5, 4)]
every_posterior = pytest.mark.parametrize(("layers", "latent", "bins"), SHAPES)

SEEDS = st.integers(0, 2**31)
SPREADS = st.floats(0.0, 0.5)


def _posterior(layers: int, latent: int, bins: int, spread: float, seed: int = 0) -> Posterior:
    """In float64, with every parameter drawn anew: the zeros some begin with would hide what they do."""
    posterior = Posterior(
        belief_size=BELIEF, latent_size=latent, context_size=CONTEXT, layers=layers, bins=bins
    ).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in posterior.parameters():
            parameter.copy_(spread * torch.randn(parameter.shape, generator=generator))
    return posterior


def _normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@every_posterior
def test_samples_and_densities_have_the_shape_of_the_noise(layers: int, latent: int, bins: int) -> None:
    posterior = _posterior(layers, latent, bins, 0.3)
    for rows, samples in [((3,), (3,)), ((3,), (7, 3)), ((2, 3), (2, 3)), ((2, 3), (7, 2, 3))]:
        z, log_prob = posterior(_normal(*rows, BELIEF)).rsample_with_log_prob(_normal(*samples, latent, seed=1))
        assert z.shape == (*samples, latent)
        assert log_prob.shape == samples


@every_posterior
def test_gradients_reach_every_parameter_the_masks_allow(layers: int, latent: int, bins: int) -> None:
    posterior = _posterior(layers, latent, bins, 0.3, seed=1)
    # Noise wide enough for every bin of every spline: a slope that no sample comes near has no gradient.
    noise = 4.0 * _normal(20, 64, latent, seed=3)
    z, log_prob = posterior(_normal(64, BELIEF, seed=2)).rsample_with_log_prob(noise)
    (z * _normal(20, 64, latent, seed=4) + log_prob[..., None]).sum().backward()
    masks = {f"{name}.weight": m.mask for name, m in posterior.named_modules() if isinstance(m, MaskedLinear)}
    for name, parameter in posterior.named_parameters():
        assert parameter.grad is not None, name
        allowed = masks.get(name, torch.ones_like(parameter, dtype=torch.bool))
        assert torch.equal(parameter.grad != 0, allowed), name


@every_posterior
@settings(max_examples=8)
@given(seed=SEEDS, spread=SPREADS, reach=st.floats(0.0, 50.0))
def test_density_of_a_sample_is_that_of_the_noise_less_the_log_determinant(
    layers: int, latent: int, bins: int, seed: int, spread: float, reach: float
) -> None:
    posterior = _posterior(layers, latent, bins, spread, seed)
    distribution = posterior(3.0 * _normal(1, BELIEF, seed=seed + 1)[0])
    noise = reach * _normal(latent, seed=seed + 2).clamp(-1, 1)
    jacobian = torch.autograd.functional.jacobian(lambda e: distribution.rsample_with_log_prob(e)[0], noise)
    sign, log_det = torch.linalg.slogdet(jacobian)
    base = -0.5 * (noise.square().sum() + latent * math.log(2 * math.pi))
    _, log_prob = distribution.rsample_with_log_prob(noise)
    # Each Flip reverses the order of the elements, which is a determinant of minus one for these sizes.
    assert sign == (-1.0) ** (layers * (latent // 2))
    torch.testing.assert_close(log_prob, base - log_det, rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 6])
@given(seed=SEEDS, spread=SPREADS, reach=st.floats(0.0, 50.0), bins=st.integers(2, 8))
def test_the_spline_layer_has_a_triangular_jacobian(
    size: int, seed: int, spread: float, reach: float, bins: int
) -> None:
    layer = AutoregressiveSpline(size=size, context_size=CONTEXT, bins=bins, bound=3.0).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(spread * torch.randn(parameter.shape, generator=generator))
    z, context = reach * _normal(size, seed=seed), 3.0 * _normal(CONTEXT, seed=seed + 1)
    jacobian = torch.autograd.functional.jacobian(lambda x: layer(x, context)[0], z)
    assert torch.equal(jacobian.triu(1), torch.zeros_like(jacobian))
    log_det = layer(z, context)[1].sum(-1)
    torch.testing.assert_close(log_det, jacobian.diagonal().log().sum(), rtol=1e-8, atol=1e-8)


def test_every_element_of_the_spline_layer_listens_to_all_before_it() -> None:
    # A mask of zeros would be triangular too.
    layer = AutoregressiveSpline(size=5, context_size=CONTEXT, bins=4, bound=3.0).double()
    context = _normal(40, CONTEXT)
    with torch.no_grad():
        layer.to_knots.weight.mul_(10)
    z = _normal(40, 5, seed=1).requires_grad_()
    out, _ = layer(z, context)
    for i in range(5):
        (gradient,) = torch.autograd.grad(out[:, i].sum(), z, retain_graph=True)
        assert (gradient[:, : i + 1].abs().amax(0) > 0).all()
        assert not gradient[:, i + 1 :].any()


@every_posterior
@settings(max_examples=8)
@given(seed=SEEDS, spread=st.floats(0.0, 0.3))
def test_log_prob_of_a_sample_is_the_density_it_brought(
    layers: int, latent: int, bins: int, seed: int, spread: float
) -> None:
    distribution = _posterior(layers, latent, bins, spread, seed)(_normal(3, BELIEF, seed=seed + 1))
    z, log_prob = distribution.rsample_with_log_prob(2.0 * _normal(5, 3, latent, seed=seed + 2))
    torch.testing.assert_close(distribution.log_prob(z), log_prob, rtol=1e-6, atol=1e-6)


@every_posterior
@settings(max_examples=8)
@given(seed=SEEDS, spread=st.floats(0.0, 0.3))
def test_inverting_the_layers_gives_back_the_noise(
    layers: int, latent: int, bins: int, seed: int, spread: float
) -> None:
    distribution = _posterior(layers, latent, bins, spread, seed)(_normal(3, BELIEF, seed=seed + 1))
    noise = 2.0 * _normal(3, latent, seed=seed + 2)
    z, _ = distribution.rsample_with_log_prob(noise)
    for layer in reversed(distribution.layers):
        z = layer.inverse(z, distribution.context)
    torch.testing.assert_close((z - distribution.mean) / distribution.scale, noise, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("layers", [0, 1, 2, 4])
@pytest.mark.parametrize("seed", [0, 1])
@torch.no_grad()
def test_density_integrates_to_one_over_a_line(layers: int, seed: int) -> None:
    distribution = _posterior(layers, 1, 5, 0.5, seed)(_normal(BELIEF, seed=seed))
    line = torch.linspace(-30, 30, 40_001, dtype=torch.float64)
    mass = torch.trapezoid(distribution.log_prob(line[:, None]).exp(), line)
    assert abs(mass - 1) < 1e-4


@pytest.mark.parametrize("layers", [0, 1, 2, pytest.param(4, marks=pytest.mark.slow)])
@torch.no_grad()
def test_density_integrates_to_one_over_a_plane(layers: int) -> None:
    distribution = _posterior(layers, 2, 4, 0.3, seed=layers)(_normal(BELIEF))
    line = torch.linspace(-10, 10, 601, dtype=torch.float64)
    density = distribution.log_prob(torch.cartesian_prod(line, line)).exp().view(601, 601)
    mass = torch.trapezoid(torch.trapezoid(density, line), line)
    assert abs(mass - 1) < 1e-3


def test_the_prior_is_a_standard_gaussian() -> None:
    z = 3.0 * _normal(4, 5, 3)
    expected = torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(-1)
    torch.testing.assert_close(prior_log_prob(z), expected)


def test_without_flow_layers_it_is_the_gaussian_it_states() -> None:
    distribution = _posterior(0, 3, 5, 0.5)(_normal(2, BELIEF))
    assert not torch.allclose(distribution.scale, torch.ones(()).double(), atol=0.05)
    count = 40_000
    z, log_prob = distribution.rsample_with_log_prob(_normal(count, 2, 3, seed=1))
    # Five standard errors of a mean, and of a standard deviation.
    assert ((z.mean(0) - distribution.mean).abs() < 5 * distribution.scale / count**0.5).all()
    assert ((z.std(0) / distribution.scale - 1).abs() < 5 / (2 * count) ** 0.5).all()
    gaussian = torch.distributions.Normal(distribution.mean, distribution.scale)
    torch.testing.assert_close(log_prob, gaussian.log_prob(z).sum(-1))


def _after_each_norm(posterior: Posterior, hidden: Tensor, noise: Tensor) -> list[Tensor]:
    distribution = posterior(hidden)
    z = distribution.mean + distribution.scale * noise
    outputs = []
    for layer in distribution.layers:
        assert isinstance(layer, FlowLayer)
        outputs.append(layer.norm(z, distribution.context)[0])
        z, _ = layer(z, distribution.context)
    return outputs


@pytest.mark.parametrize(("layers", "latent"), [(1, 1), (2, 3), (4, 5)])
def test_initialise_centres_and_scales_the_output_of_every_norm(layers: int, latent: int) -> None:
    posterior = _posterior(layers, latent, 5, 0.5, seed=1)
    hidden, noise = 5.0 * _normal(500, BELIEF, seed=2) + 2.0, _normal(500, latent, seed=3)
    before = _after_each_norm(posterior, hidden, noise)
    assert all((z.mean(0).abs() > 0.02).any() for z in before)
    posterior.initialise(hidden, noise)
    after = _after_each_norm(posterior, hidden, noise)
    assert len(after) == layers
    for z in after:
        torch.testing.assert_close(z.mean(0), torch.zeros(latent).double(), rtol=0, atol=1e-6)
        torch.testing.assert_close(z.std(0), torch.ones(latent).double(), rtol=1e-2, atol=0)


@pytest.mark.parametrize("spread", [1e-2, 1.0, 100.0, 700.0, 1e4])
def test_initialise_centres_a_batch_of_any_spread(spread: float) -> None:
    norm = ActNorm(3, CONTEXT).double()
    z = spread * (_normal(200, 3) + torch.tensor([0.0, 1.0, -3.0]))
    norm.initialise(z)
    out, _ = norm(z, _normal(200, CONTEXT, seed=1))
    torch.testing.assert_close(out.mean(0) / out.std(0), torch.zeros(3).double(), rtol=0, atol=1e-6)


# On some processors oneDNN's bfloat16 products of these small shapes fail; switching it off warns about TF32, which is not used.
@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("reach", [1.0, 100.0, 1e4])
@every_posterior
def test_far_states_and_noise_leave_everything_finite(
    layers: int, latent: int, bins: int, reach: float, dtype: torch.dtype
) -> None:
    posterior = _posterior(layers, latent, bins, 0.5).to(dtype)
    hidden = (reach * _normal(50, BELIEF).clamp(-1, 1)).to(dtype).requires_grad_()
    noise = (reach * _normal(50, latent, seed=1).clamp(-1, 1)).to(dtype).requires_grad_()
    with torch.backends.mkldnn.flags(enabled=False):
        z, log_prob = posterior(hidden).rsample_with_log_prob(noise)
        (z.sum() + log_prob.sum()).backward()
    assert z.isfinite().all()
    assert log_prob.isfinite().all()
    # Densities are sums over many dimensions: bfloat16 would leave two digits of them.
    assert log_prob.dtype == torch.float32
    for tensor in (hidden, noise, *posterior.parameters()):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()


@every_posterior
def test_saved_state_gives_back_the_same_samples(layers: int, latent: int, bins: int) -> None:
    posterior, other = _posterior(layers, latent, bins, 0.5), _posterior(layers, latent, bins, 0.5, seed=9)
    hidden, noise = _normal(4, BELIEF), _normal(4, latent, seed=1)
    z, log_prob = posterior(hidden).rsample_with_log_prob(noise)
    assert not torch.equal(other(hidden).rsample_with_log_prob(noise)[0], z)
    other.load_state_dict(posterior.state_dict())
    again, log_prob_again = other(hidden).rsample_with_log_prob(noise)
    assert torch.equal(again, z)
    assert torch.equal(log_prob_again, log_prob)


@every_posterior
def test_many_samples_at_once_are_the_samples_one_by_one(layers: int, latent: int, bins: int) -> None:
    posterior = _posterior(layers, latent, bins, 0.5)
    hidden, noise = _normal(3, BELIEF), _normal(7, 3, latent, seed=1)
    z, log_prob = posterior(hidden).rsample_with_log_prob(noise)
    for p in range(7):
        for b in range(3):
            alone, log_prob_alone = posterior(hidden[b]).rsample_with_log_prob(noise[p, b])
            torch.testing.assert_close(z[p, b], alone, rtol=1e-10, atol=1e-10)
            torch.testing.assert_close(log_prob[p, b], log_prob_alone, rtol=1e-10, atol=1e-10)


@every_posterior
def test_the_density_depends_on_the_belief(layers: int, latent: int, bins: int) -> None:
    posterior = _posterior(layers, latent, bins, 0.5)
    hidden, noise = _normal(2, BELIEF), _normal(1, latent, seed=1).expand(2, latent)
    z, log_prob = posterior(hidden).rsample_with_log_prob(noise)
    assert (z[0] != z[1]).all()
    assert log_prob[0] != log_prob[1]


def test_fresh_flow_layers_start_near_the_identity() -> None:
    # So that training starts from the Gaussian base, whatever the number of layers.
    torch.manual_seed(0)
    layer = FlowLayer(size=6, context_size=CONTEXT, bins=5, bound=3.0).double()
    z = _normal(100, 6)
    out, log_slope = layer(z, _normal(100, CONTEXT, seed=1))
    torch.testing.assert_close(out, z.flip(-1), rtol=0, atol=0.2)
    assert log_slope.sum(-1).abs().max() < 0.5


def test_a_sample_without_its_density_is_the_same_sample() -> None:
    distribution = _posterior(layers=3, latent=4, bins=5, spread=0.3)(_normal(7, BELIEF))
    noise = _normal(2, 7, 4, seed=1)
    torch.testing.assert_close(distribution.rsample(noise), distribution.rsample_with_log_prob(noise)[0])
