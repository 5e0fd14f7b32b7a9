from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from infogaze import PRESETS, Model, build, preset
from infogaze.data.registry import SETS
from infogaze.grid import extract
from infogaze.models import bundled, load


@dataclass(frozen=True)
class Row:
    """What the paper states of a data set: sections 4 and A, tables 1 and 2, appendix B."""

    side: int
    classes: int
    glimpse: int
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
        side=model.height, classes=model.classes, glimpse=model.glimpse, stride=model.stride,
        n_g=len(model.glimpse_widths), n_s=model.flow_layers, f=model.feature_size, h=model.belief_size,
        z=model.latent_size, beta=ours.beta, learning_rates=ours.learning_rates,
    )  # fmt: skip
    assert stated == PAPER[name]
    assert model.width == model.height
    assert model.channels == 3
    assert ours.alpha == 1 / PAPER[name].z
    assert (ours.looks, ours.samples) == (7, 20)
    assert (ours.dropout, model.attention_hops) == (0.5, 0)


@pytest.mark.parametrize("name", PRESETS)
@torch.no_grad()
def test_every_preset_builds_and_makes_a_map(name: str) -> None:
    # Without memory or arithmetic: on the meta device only the shapes are worked out.
    config = preset(name).model
    with torch.device("meta"):
        model = build(config).eval()
        where = torch.zeros(2, 2, dtype=torch.int64)
        images = torch.zeros(2, config.channels, config.height, config.width)
        content = model.backbone.features(extract(images, where, config.glimpse))
        belief = model.backbone.update(model.backbone.start(2), content, where)
        gain = model.gain(belief, torch.zeros(3, 2, config.latent_size))
    assert model.backbone.classify(belief).shape == (2, config.classes)
    assert gain.shape == (2, config.grid.places)


def test_the_digits_preset_builds_for_real() -> None:
    model = build(preset("digits").model)
    assert isinstance(model, Model)
    belief = model.eval().backbone.start(2)
    with torch.no_grad():
        assert model.gain(belief, torch.zeros(2, 2, preset("digits").model.latent_size)).isfinite().all()


def test_all_but_the_embedded_digits_have_hindsight() -> None:
    assert {name for name in PRESETS if not preset(name).model.hindsight} == {"digits"}


def test_digits_are_not_mirrored() -> None:
    # A mirrored digit is another digit, or none.
    assert {name for name in PRESETS if not preset(name).mirror} == {"svhn", "digits"}


def test_cifar10_plus_sees_no_more_of_the_same_scenes_than_cifar10() -> None:
    ours, theirs = preset("cifar10-plus"), preset("cifar10")
    seen = ("height", "width", "channels", "classes", "glimpse", "stride")
    assert {name: getattr(ours.model, name) for name in seen} == {name: getattr(theirs.model, name) for name in seen}
    assert ours.model.grid == theirs.model.grid
    assert (ours.data, ours.looks, ours.samples) == (theirs.data, theirs.looks, theirs.samples) == ("cifar10", 7, 20)


def test_every_preset_is_for_a_set_that_can_be_read() -> None:
    assert {settings.data for settings in PRESETS.values()} <= set(SETS)
    assert {name: settings.data for name, settings in PRESETS.items() if settings.data != name} == {
        "cifar10-plus": "cifar10"
    }


def test_cifar10_plus_alone_has_a_twin_and_a_belief_that_is_kept() -> None:
    assert {name for name in PRESETS if preset(name).twin} == {"cifar10-plus"}
    assert {name for name in PRESETS if preset(name).model.keeping} == {"cifar10-plus"}
    # A twin takes a scene and its mirror image to have the same label, as mirroring in training does.
    assert all(settings.mirror for settings in PRESETS.values() if settings.twin)


def test_a_bundled_model_is_what_its_preset_would_train_today() -> None:
    assert set(bundled()) <= set(PRESETS)
    for name in bundled():
        agent, settings = load(name), preset(name)
        assert (agent.config, agent.looks, agent.samples) == (settings.model, settings.looks, settings.samples), name
        assert agent.twin == settings.twin, name


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'cifar11'; there are svhn, cifar10"):
        preset("cifar11")
