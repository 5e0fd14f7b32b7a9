from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from zuko.transforms import MonotonicRQSTransform

from infogaze.nn import spline

BINS = st.integers(1, 8)
SEEDS = st.integers(0, 2**31)
SPREADS = st.floats(0.0, 4.0)
BOUNDS = st.floats(0.5, 8.0)


def _knots(bins: int, elements: int, spread: float, seed: int, bound: float = 3.0) -> spline.Knots:
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randn(spline.parameters(bins), elements, generator=generator, dtype=torch.float64)
    return spline.knots(spread * raw, bound)


def _inputs(elements: int, seed: int, bound: float) -> Tensor:
    """[64, elements], three in four of them within the spline's range."""
    generator = torch.Generator().manual_seed(seed + 1)
    return (torch.rand(64, elements, generator=generator, dtype=torch.float64) - 0.5) * bound * 8 / 3


def _corners(sizes: tuple[Tensor, ...], bound: float) -> Tensor:
    """[K + 1, elements]: the knots along one axis."""
    stacked = torch.stack(sizes)
    return torch.cat([torch.zeros_like(stacked[:1]), stacked.cumsum(0)]) - bound


@given(BINS, SPREADS, SEEDS, BOUNDS)
def test_any_numbers_make_bins_that_fill_the_range(bins: int, spread: float, seed: int, bound: float) -> None:
    curve = _knots(bins, 5, spread, seed, bound)
    for sizes in (curve.widths, curve.heights):
        assert len(sizes) == bins
        assert (torch.stack(sizes) > 0).all()
        torch.testing.assert_close(torch.stack(sizes).sum(0), torch.full((5,), 2 * bound, dtype=torch.float64))
    assert len(curve.slopes) == bins - 1
    assert all((slope > 0).all() for slope in curve.slopes)


@given(BINS, SPREADS, SEEDS, BOUNDS)
def test_inverse_undoes_forward_and_forward_undoes_inverse(bins: int, spread: float, seed: int, bound: float) -> None:
    curve, x = _knots(bins, 5, spread, seed, bound), _inputs(5, seed, bound)
    y, log_slope = spline.forward(x, curve)
    # One unit in the last place of y is this much of x: where the curve is nearly flat, y cannot tell x apart better.
    room = 1e-11 * (1 + (-log_slope).exp())
    assert ((spline.inverse(y, curve) - x).abs() <= room).all()
    back = spline.inverse(x, curve)
    again, slope_there = spline.forward(back, curve)
    assert ((again - x).abs() <= 1e-11 * (1 + slope_there.exp())).all()


@given(BINS, SPREADS, SEEDS, BOUNDS)
def test_larger_inputs_give_larger_outputs(bins: int, spread: float, seed: int, bound: float) -> None:
    curve, x = _knots(bins, 5, spread, seed, bound), _inputs(5, seed, bound).sort(0).values
    y, _ = spline.forward(x, curve)
    assert (y.diff(dim=0) > 0).all()


@given(BINS, SEEDS, BOUNDS)
def test_zeros_give_the_identity(bins: int, seed: int, bound: float) -> None:
    curve, x = _knots(bins, 3, 0.0, 0, bound), _inputs(3, seed, bound)
    y, log_slope = spline.forward(x, curve)
    torch.testing.assert_close(y, x, rtol=0, atol=1e-12)
    torch.testing.assert_close(log_slope, torch.zeros_like(x), rtol=0, atol=1e-12)
    torch.testing.assert_close(spline.inverse(x, curve), x, rtol=0, atol=1e-12)


@given(BINS, SPREADS, SEEDS, BOUNDS)
def test_value_and_slope_are_continuous_at_the_bound(bins: int, spread: float, seed: int, bound: float) -> None:
    curve = _knots(bins, 5, spread, seed, bound)
    for end in (-bound, bound):
        just_inside = torch.full((5,), end * (1 - 1e-13), dtype=torch.float64)
        y, log_slope = spline.forward(just_inside, curve)
        torch.testing.assert_close(y, just_inside, rtol=0, atol=1e-10)
        # The smallest bin is a thousandth of the range and slopes may reach thousands: log-slopes bend by up to 1e7 a unit.
        torch.testing.assert_close(log_slope, torch.zeros_like(y), rtol=0, atol=1e-5)


@given(BINS, SPREADS, SEEDS, BOUNDS)
def test_at_the_bound_and_beyond_it_is_exactly_the_identity(bins: int, spread: float, seed: int, bound: float) -> None:
    curve = _knots(bins, 5, spread, seed, bound)
    for far in (1.0, 1.0 + 1e-12, 2.0, 1e4):
        for sign in (-1.0, 1.0):
            x = torch.full((5,), sign * far * bound, dtype=torch.float64)
            y, log_slope = spline.forward(x, curve)
            assert torch.equal(y, x)
            assert torch.equal(log_slope, torch.zeros_like(x))
            assert torch.equal(spline.inverse(x, curve), x)


@given(st.integers(2, 8), SPREADS, SEEDS, BOUNDS)
def test_it_goes_through_its_knots_with_their_slopes(bins: int, spread: float, seed: int, bound: float) -> None:
    curve = _knots(bins, 5, spread, seed, bound)
    across, up = _corners(curve.widths, bound)[1:-1], _corners(curve.heights, bound)[1:-1]
    y, log_slope = spline.forward(across, curve)
    torch.testing.assert_close(y, up, rtol=0, atol=1e-9)
    # A rounding of the knot's place is multiplied by how fast the slope changes there, up to 1e7 a unit.
    torch.testing.assert_close(log_slope, torch.stack(curve.slopes).log(), rtol=0, atol=1e-5)
    flattest = torch.minimum(torch.stack(curve.slopes), torch.ones(()).double())
    assert ((spline.inverse(up, curve) - across).abs() <= 1e-11 / flattest).all()


@given(BINS, SPREADS, SEEDS, BOUNDS)
def test_log_slope_is_the_derivative(bins: int, spread: float, seed: int, bound: float) -> None:
    curve, x = _knots(bins, 5, spread, seed, bound), _inputs(5, seed, bound).requires_grad_()
    y, log_slope = spline.forward(x, curve)
    (derivative,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(log_slope.detach(), derivative.log(), rtol=1e-8, atol=1e-8)


@given(st.integers(1, 8), st.floats(0.0, 10.0), SEEDS, BOUNDS)
def test_equal_to_zuko_on_the_same_knots(bins: int, spread: float, seed: int, bound: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    raw = spread * torch.randn(5, 3 * bins - 1, generator=generator, dtype=torch.float64)
    oracle = MonotonicRQSTransform(*raw.split([bins, bins, bins - 1], -1), bound=bound)
    ours = spline.Knots(
        widths=oracle.horizontal.diff(dim=-1).unbind(-1),
        heights=oracle.vertical.diff(dim=-1).unbind(-1),
        slopes=oracle.derivatives[:, 1:-1].unbind(-1),
        bound=bound,
    )
    x = _inputs(5, seed, bound)
    y, log_slope = spline.forward(x, ours)
    expected_y, expected_log_slope = oracle.call_and_ladj(x)
    torch.testing.assert_close(y, expected_y, rtol=0, atol=1e-10)
    torch.testing.assert_close(log_slope, expected_log_slope, rtol=0, atol=1e-6)
    # Where a wide bin ends steeply, zuko's root of the quadratic loses half its digits.
    torch.testing.assert_close(spline.inverse(x, ours), oracle.inv(x), rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bins", [1, 2, 5, 8])
@pytest.mark.parametrize("size", [1.0, 30.0, 1e4])
def test_extreme_numbers_leave_values_slopes_and_gradients_finite(dtype: torch.dtype, bins: int, size: float) -> None:
    generator = torch.Generator().manual_seed(bins)
    bound = 3.0
    raw = (torch.rand(40, spline.parameters(bins), 30, generator=generator) * 2 - 1) * size
    raw[:20] = raw[:20].sign() * size
    x = (torch.rand(40, 30, generator=generator) * 2 - 1) * bound
    x[:, :6] *= 1e4 / bound
    inner = torch.nextafter(torch.tensor(bound), torch.tensor(0.0)).item()
    x[:, 6:12] = torch.tensor([bound, -bound, 0.0, inner, -inner, 1e4])
    raw, x = raw.to(dtype).requires_grad_(), x.to(dtype).requires_grad_()
    curve = spline.knots(raw, bound)
    y, log_slope = spline.forward(x, curve)
    back = spline.inverse(x, curve)
    assert y.isfinite().all()
    assert log_slope.isfinite().all()
    assert back.isfinite().all()
    for output in (y, log_slope):
        for gradient in torch.autograd.grad(output.sum(), (raw, x), retain_graph=True):
            assert gradient.isfinite().all()


def _extreme(dtype: torch.dtype, elements: int = 30) -> tuple[spline.Knots, Tensor]:
    """Knots as far apart, and slopes as steep and as flat, as numbers of any size make them; and places within the range."""
    generator = torch.Generator().manual_seed(0)
    raw = (torch.randn(200, spline.parameters(5), elements, generator=generator).sign() * 1e4).to(dtype)
    return spline.knots(raw, 3.0), ((torch.rand(200, elements, generator=generator) * 2 - 1) * 3.0).to(dtype)


def _by_bisection(y: Tensor, curve: spline.Knots) -> Tensor:
    """The x with f(x) = y, by halving the range a hundred times."""
    low, high = torch.full_like(y, -curve.bound), torch.full_like(y, curve.bound)
    for _ in range(100):
        middle = (low + high) / 2
        below = spline.forward(middle, curve)[0] < y
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_numbers_never_leave_the_range(dtype: torch.dtype) -> None:
    curve, x = _extreme(dtype)
    y, _ = spline.forward(x, curve)
    # Bins are added up one by one in float32, so the last knot may lie a few units in the last place off.
    assert (y.abs() <= 3.0 + 1e-5).all()
    assert (spline.inverse(x, curve).abs() <= 3.0 + 1e-5).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_forward_and_inverse_are_those_of_float64_at_extreme_numbers(dtype: torch.dtype) -> None:
    curve, x = _extreme(dtype)
    precise = curve.double()
    y, log_slope = spline.forward(x.double(), precise)
    # The knots are added up in float32: where the curve is steep, that moves y by as much more.
    assert ((spline.forward(x, curve)[0] - y).abs() <= 4e-6 * (1 + log_slope.exp())).all()
    torch.testing.assert_close(
        spline.inverse(x, curve).double(), spline.inverse(x.double(), precise), rtol=2e-7, atol=2e-7
    )


@given(BINS, st.floats(0.0, 1e4), SEEDS, BOUNDS)
def test_the_inverse_finds_what_bisection_finds(bins: int, spread: float, seed: int, bound: float) -> None:
    curve, y = _knots(bins, 5, spread, seed, bound), _inputs(5, seed, bound).clamp(-bound, bound)
    x = _by_bisection(y, curve)
    _, log_slope = spline.forward(x, curve)
    # As far as f tells neighbouring x apart: where it is flat, not well.
    assert ((spline.inverse(y, curve) - x).abs() <= 1e-12 * bound * (1 + (-log_slope).exp())).all()
