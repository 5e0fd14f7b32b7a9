from __future__ import annotations

import pytest
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor

from infogaze.data.augmentation import Augmentation
from infogaze.data.sensor_faults import (
    STRENGTHS,
    Faults,
    draw_displacement,
    draw_faults,
    has_faults,
    with_faults,
)
from infogaze.errors import InfogazeError

SCENES = torch.rand(4, 2, 9, 11, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
NORMAL = torch.randn(SCENES.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
BROKEN = Augmentation(exposure=1.5, blur=2.0, noise=0.2)


def faults(*, exposure: float = 1.0, blur: float = 0.0, noise: float = 0.0) -> Faults:
    """The same in every scene."""
    every = torch.ones(len(SCENES), dtype=SCENES.dtype)
    return Faults(exposure=exposure * every, blur=blur * every, noise=noise * every)


def uniform(count: int) -> Tensor:
    return torch.rand(count, STRENGTHS, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def test_half_of_the_scenes_have_none_of_a_fault_and_the_others_any_strength_up_to_the_largest() -> None:
    drawn = draw_faults(uniform(20_000), BROKEN)
    for strength, largest in ((drawn.blur, 2.0), (drawn.noise, 0.2), (drawn.exposure.log2().abs(), 1.5)):
        assert float((strength == 0.0).double().mean()) == pytest.approx(0.5, abs=0.02)
        some = strength[strength > 0.0]
        assert float(some.amax()) == pytest.approx(largest, rel=0.01)
        assert float(some.mean()) == pytest.approx(largest / 2, rel=0.03)
    assert float((drawn.exposure > 1.0).double().mean()) == pytest.approx(0.25, abs=0.02)
    assert float((drawn.exposure < 1.0).double().mean()) == pytest.approx(0.25, abs=0.02)


def test_without_a_fault_a_scene_stays_as_it_is() -> None:
    torch.testing.assert_close(with_faults(SCENES, faults(), NORMAL, largest_blur=0.0), SCENES)
    torch.testing.assert_close(with_faults(SCENES, faults(), NORMAL, largest_blur=2.0), SCENES)
    assert not has_faults(Augmentation())
    assert not has_faults(None)
    assert not has_faults(Augmentation(displacement=2)), "which changes no pixel of a scene"
    assert all(has_faults(Augmentation(**{name: 0.1})) for name in ("exposure", "blur", "noise"))  # type: ignore[arg-type]


@pytest.mark.parametrize("sigma", [0.3, 1.0, 1.7])
def test_blur_is_a_gaussian_with_edge_pixels_repeated(sigma: float) -> None:
    found = with_faults(SCENES, faults(blur=sigma), NORMAL, largest_blur=2.0)
    # It is cut off at three of the largest standard deviation, so that all scenes take as many sums.
    expected = gaussian_filter(SCENES.numpy(), sigma, mode="nearest", axes=(2, 3), truncate=6.0 / sigma)
    torch.testing.assert_close(found, torch.from_numpy(expected))


def test_exposure_multiplies_and_cuts_off_at_the_brightest() -> None:
    torch.testing.assert_close(with_faults(SCENES, faults(exposure=0.5), NORMAL, largest_blur=0.0), SCENES / 2)
    bright = with_faults(SCENES, faults(exposure=2.0), NORMAL, largest_blur=0.0)
    torch.testing.assert_close(bright, (2 * SCENES).clamp(max=1.0))


def test_noise_has_its_standard_deviation_and_leaves_the_pixel_range_to_nobody() -> None:
    grey = torch.full((4, 1, 60, 60), 0.5, dtype=torch.float64)
    normal = torch.randn(grey.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    noisy = with_faults(grey, faults(noise=0.05), normal, largest_blur=0.0)
    assert float(noisy.std()) == pytest.approx(0.05, rel=0.03)
    loud = with_faults(SCENES, faults(noise=2.0), NORMAL, largest_blur=0.0)
    assert float(loud.amin()) == 0.0
    assert float(loud.amax()) == 1.0


def test_what_happens_to_a_scene_does_not_depend_on_its_neighbours() -> None:
    drawn = draw_faults(uniform(4), BROKEN)
    together = with_faults(SCENES, drawn, NORMAL, largest_blur=2.0)
    for scene in range(4):
        own = slice(scene, scene + 1)
        alone = Faults(exposure=drawn.exposure[own], blur=drawn.blur[own], noise=drawn.noise[own])
        torch.testing.assert_close(with_faults(SCENES[own], alone, NORMAL[own], largest_blur=2.0), together[own])


@pytest.mark.parametrize("pixels", [1, 3])
def test_places_are_displaced_by_whole_pixels_all_equally_likely(pixels: int) -> None:
    numbers = torch.rand(300, 20, 2, generator=torch.Generator().manual_seed(3))
    found = draw_displacement(numbers, pixels)
    values, counts = found.flatten().unique(return_counts=True)
    assert values.tolist() == list(range(-pixels, pixels + 1))
    torch.testing.assert_close(
        counts / found.numel(), torch.full_like(counts, 1 / len(values), dtype=torch.float32), atol=0.02, rtol=0
    )
    assert draw_displacement(torch.tensor([[[0.0, 1.0 - 2**-24]]]), pixels).tolist() == [[[-pixels, pixels]]]


@pytest.mark.parametrize("name", ["exposure", "blur", "noise", "displacement"])
def test_a_negative_fault_is_refused(name: str) -> None:
    with pytest.raises(InfogazeError, match=f"{name} is -1"):
        Augmentation(**{name: -1})  # type: ignore[arg-type]
