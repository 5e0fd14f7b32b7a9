from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from infogaze import METHODS, PRESETS, RECIPES, Model, Origin, build, preset
from infogaze.data.registry import SETS
from infogaze.errors import InfogazeError
from infogaze.grid import extract
from infogaze.models import bundled, load
from infogaze.nn.partial_vae import PartialVAE


@dataclass(frozen=True)
class Row:
    """What the paper states of a data set: sections 4 and A, tables 1 and 2, appendix B."""

    side: int
    num_classes: int
    glimpse_size: int
    stride: int
    n_g: int
    n_s: int
    f: int
    h: int
    z: int
    beta: float
    learning_rates: tuple[float, float, float]


PAPER = {
    "svhn": Row(32, 10, 8, 4, 3, 4, 128, 512, 256, 32, (1e-3, 1e-3, 1e-3)),
    "cinic10": Row(32, 10, 8, 4, 3, 4, 128, 512, 256, 16, (1e-3, 1e-3, 1e-3)),
    "cifar10": Row(32, 10, 8, 4, 3, 4, 128, 512, 256, 16, (1e-3, 1e-3, 1e-3)),
    "cifar100": Row(32, 100, 8, 4, 3, 6, 512, 2048, 1024, 8, (1e-3, 1e-4, 1e-4)),
    "tinyimagenet": Row(64, 200, 16, 8, 7, 6, 512, 2048, 1024, 8, (1e-3, 1e-4, 1e-4)),
}


@pytest.mark.parametrize("name", PAPER)
def test_presets_carry_the_numbers_of_the_paper(name: str) -> None:
    ours, model = preset(name), preset(name).model
    stated = Row(
        side=model.height, num_classes=model.num_classes, glimpse_size=model.glimpse_size, stride=model.stride,
        n_g=len(model.glimpse_widths), n_s=model.flow_layers, f=model.feature_size, h=model.belief_size,
        z=model.latent_size, beta=ours.beta, learning_rates=ours.learning_rates,
    )  # fmt: skip
    assert stated == PAPER[name]
    assert model.width == model.height
    assert model.channels == 3
    assert ours.alpha == 1 / PAPER[name].z
    assert (ours.num_looks, ours.num_samples) == (7, 20)
    assert (ours.dropout, model.attention_hops) == (0.5, 0)


@pytest.mark.parametrize("by", ["dictionary", "partial VAE"])
@pytest.mark.parametrize("name", PRESETS)
@torch.no_grad()
def test_every_preset_builds_and_makes_a_map(name: str, by: str) -> None:
    # Without memory or arithmetic: on the meta device only the shapes are worked out.
    config = preset(name).model if by == "dictionary" else replace(preset(name).model, dictionary_entries=0)
    with torch.device("meta"):
        model = build(config).eval()
        where = torch.zeros(2, 2, dtype=torch.int64)
        images = torch.zeros(2, config.channels, config.height, config.width)
        content = model.backbone.features(extract(images, where, config.glimpse_size))
        belief = model.backbone.update(model.backbone.start(2), content, where)
        gain = model.gain(belief, 3, noise=torch.zeros(2, *model.imagination.noise_shape(3)))
    assert isinstance(model.imagination, PartialVAE) == (by == "partial VAE")
    assert model.backbone.classify(belief).shape == (2, config.num_classes)
    assert gain.shape == (2, config.grid.num_locations)


def test_the_digits_preset_builds_for_real() -> None:
    model = build(preset("digits").model)
    assert isinstance(model, Model)
    belief = model.eval().backbone.start(2)
    with torch.no_grad():
        noise = torch.zeros(2, *model.imagination.noise_shape(3))
        assert model.gain(belief, 3, noise=noise).isfinite().all()


@pytest.mark.parametrize("given", [False, True])
def test_a_gain_correction_is_the_methods_and_no_presets(given: bool) -> None:
    assert not any(preset(name).model.gain_correction for name in PRESETS)
    sizes = replace(preset("cifar10").model, gain_correction=given)
    imagining = {name: METHODS[name].sizes(sizes) for name in METHODS if METHODS[name].imagines}
    corrected = {name for name, own in imagining.items() if own.gain_correction}
    assert corrected == {"infogaze", "paper-corrected", "gaussian-corrected"}
    assert set(imagining) - corrected == {"dictionary", "paper", "gaussian", "attention"}


def test_digits_are_not_mirrored() -> None:
    # A mirrored digit is another digit, or none.
    assert {name for name in PRESETS if not preset(name).horizontal_flip} == {"svhn", "digits", "cluttered"}


def test_cifar10_plus_sees_no_more_of_the_same_scenes_than_cifar10() -> None:
    ours, theirs = preset("cifar10-plus"), preset("cifar10")
    seen = ("height", "width", "channels", "num_classes", "glimpse_size", "stride")
    assert {name: getattr(ours.model, name) for name in seen} == {name: getattr(theirs.model, name) for name in seen}
    assert ours.model.grid == theirs.model.grid
    for name, value in (("data", "cifar10"), ("num_looks", 7), ("num_samples", 20)):
        assert getattr(ours, name) == getattr(theirs, name) == value


def test_every_preset_is_for_a_set_that_can_be_read() -> None:
    assert {settings.data for settings in PRESETS.values()} <= set(SETS)
    assert {name: settings.data for name, settings in PRESETS.items() if settings.data != name} == {
        "cifar10-plus": "cifar10",
        "own": "folder",
    }


def test_what_departs_from_the_paper_is_in_our_own_presets_alone() -> None:
    assert {name for name in PRESETS if preset(name).flip_tta} == {"cifar10-plus"}
    assert {name for name in PRESETS if preset(name).model.residual_belief} == {"cifar10-plus", "own", "cluttered"}
    # Test-time augmentation takes a scene and its mirror image to have the same label, as flips in training do.
    assert all(settings.horizontal_flip for settings in PRESETS.values() if settings.flip_tta)


def test_a_flip_at_test_time_is_refused_where_a_mirrored_scene_has_another_label() -> None:
    with pytest.raises(InfogazeError, match=r"flip_tta.*horizontal_flip"):
        replace(preset("digits"), flip_tta=True)


def test_every_preset_names_its_recipe_and_own_pictures_have_a_validation_split() -> None:
    assert {settings.recipe for settings in PRESETS.values()} <= set(RECIPES)
    assert (preset("own").recipe, preset("digits").recipe) == ("own", "quickstart")
    assert {name for name, settings in PRESETS.items() if settings.val_fraction > 0.0} == {"own"}
    # Own pictures may be few, so that epochs say little; steps are as many on any set.
    assert all(RECIPES["own"].phase1.num_steps(count) == RECIPES["own"].phase1.steps for count in (10, 10**6))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_looks", 0), ("num_samples", 0), ("num_samples", 10**7), ("dropout", 1.0), ("dropout", -0.1), ("beta", -1.0),
        ("learning_rates", (1e-3, 0.0, 1e-3)),
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InfogazeError) as caught:
        replace(preset("own"), **{field: value})  # type: ignore[arg-type]
    assert field in str(caught.value)
    assert str(value) in str(caught.value)


def test_a_bundled_model_is_what_its_preset_would_train_today() -> None:
    methods = {
        "digits": "infogaze", "cifar10": "infogaze", "cifar10-plus": "paper-corrected", "svhn": "paper-corrected",
        "cifar10-paper": "paper",
    }  # fmt: skip
    assert set(bundled()) == set(methods)
    for name, method in methods.items():
        agent, settings = load(name), preset(name.removesuffix("-paper"))
        assert agent.origin is not None
        sizes = METHODS[method].sizes(settings.model)
        contents = settings.num_contents(METHODS[method].imagination)
        assert agent.origin == Origin(method=method, config=sizes, num_samples=contents), name
        assert (agent.num_looks, agent.flip_tta) == (settings.num_looks, settings.flip_tta), name


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'cifar11'; there are svhn, cifar10"):
        preset("cifar11")
