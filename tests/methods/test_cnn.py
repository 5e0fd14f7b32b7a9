from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from infogaze import METHODS, Agent, ImageSensor, Origin, RandomPolicy
from infogaze.data.sets import Split
from infogaze.evaluation.exact_pass import exact_pass
from infogaze.evaluation.measurement import Subject
from infogaze.grid import extract
from infogaze.methods.cnn import PHASES, PictureBackbone, picture_network
from infogaze.methods.registry import build_for
from infogaze.models import make_agent
from infogaze.nn.belief import Belief
from infogaze.nn.pixels import normalise_pixels
from tests.support.methods import batch_for, made, outcome
from tests.support.tiny import CONFIG

COVERED = replace(CONFIG, height=12, width=10)
"""Sizes that glimpses of 4, 2 apart, cover to the last pixel."""
SIDE, SHAPE = CONFIG.glimpse_size, (CONFIG.channels, CONFIG.height, CONFIG.width)


def picture() -> PictureBackbone:
    backbone = made("cnn").eval().backbone
    assert isinstance(backbone, PictureBackbone)
    return backbone


BACKBONE = picture()


@given(looks=st.integers(1, 5), scenes=st.integers(1, 3), fractions=st.booleans(), seed=st.integers(0, 2**31))
def test_glimpses_lie_where_they_were_seen_the_later_over_the_earlier_and_the_rest_is_grey(
    looks: int, scenes: int, fractions: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    last = torch.tensor([CONFIG.height - SIDE, CONFIG.width - SIDE])
    where = torch.rand(looks, scenes, 2, generator=generator) * last
    if not fractions:
        where = where.round().long()
    glimpses = torch.rand(looks, scenes, CONFIG.channels, SIDE, SIDE, generator=generator) * 2 - 1
    belief = BACKBONE.start(scenes)
    expected = torch.zeros(scenes, *SHAPE)
    for content, locations in zip(glimpses, where, strict=True):
        before = belief.hidden.clone()
        updated = BACKBONE.update(belief, BACKBONE.features(content), locations)
        assert torch.equal(belief.hidden, before), "a belief is not changed, another one is made"
        belief = updated
        for scene, (row, col) in enumerate(locations.tolist()):
            for i in range(SIDE):
                for j in range(SIDE):
                    expected[scene, :, round(row) + i, round(col) + j] = content[scene, :, i, j]
    assert torch.equal(belief.hidden.view(scenes, *SHAPE), expected)


def test_before_the_first_look_everything_is_grey() -> None:
    assert torch.equal(BACKBONE.start(2).hidden, torch.zeros(2, CONFIG.channels * CONFIG.height * CONFIG.width))
    assert float(normalise_pixels(torch.tensor([127.5]) / 255)) == 0.0, "grey is halfway"


def test_looking_everywhere_is_seeing_the_complete_image() -> None:
    model = build_for("cnn", COVERED, 1)
    origin = Origin(method="cnn", config=COVERED, num_samples=1)
    agent = make_agent(model, ("a", "b", "c"), origin=origin, num_looks=COVERED.grid.num_locations)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (4, COVERED.channels, COVERED.height, COVERED.width), generator=generator)
    images = images.to(torch.uint8)
    done = agent.run(ImageSensor(images, SIDE), batch=4)
    assert isinstance(model.backbone, PictureBackbone)
    with torch.no_grad():
        complete = model.backbone.network(normalise_pixels(images))
    assert len(done.history) == COVERED.grid.num_locations
    torch.testing.assert_close(done.belief.hidden, normalise_pixels(images).flatten(1))
    torch.testing.assert_close(done.probabilities, complete.exp())
    assert not torch.allclose(done.history[0].probabilities, complete.exp()), "one place is not all"


def test_all_looks_at_once_are_the_looks_one_by_one() -> None:
    model = made("cnn")
    batch = batch_for(PHASES[0], model, 3)
    locations = torch.tensor([[0, 0], [9, 7], [3, 2]])[:, None].expand(3, 3, 2)
    content = BACKBONE.features(extract(batch.images, locations.movedim(0, 1), SIDE)).movedim(1, 0)
    unrolled = BACKBONE.classify(BACKBONE.unroll(content, locations))
    belief = BACKBONE.start(3)
    for look in range(3):
        belief = BACKBONE.update(belief, content[look], locations[look])
        torch.testing.assert_close(unrolled[look], BACKBONE.classify(belief))


def test_its_loss_is_the_cross_entropy_of_complete_images() -> None:
    model = made("cnn")
    assert isinstance(model.backbone, PictureBackbone)
    batch = batch_for(PHASES[0], model)
    found = outcome(PHASES[0], model, batch)
    log_p = model.backbone.network(batch.images)
    torch.testing.assert_close(found.loss, -log_p[torch.arange(6), batch.labels].mean())
    assert found.accuracy.tolist() == pytest.approx([float((log_p.argmax(1) == batch.labels).double().mean())])
    assert not bool(found.visits.any()), "nothing is looked at"


def test_what_it_answers_is_a_distribution() -> None:
    torch.testing.assert_close(
        BACKBONE.classify(Belief(torch.randn(2, 3, BACKBONE.start(1).hidden.shape[1]), torch.zeros(2, 3, 0))).exp().sum(-1),
        torch.ones(2, 3),
    )  # fmt: skip


@pytest.mark.parametrize("size", [(8, 8), (9, 31)])
def test_small_and_narrow_scenes_have_a_network(size: tuple[int, int]) -> None:
    config = replace(CONFIG, height=size[0], width=size[1])
    model = picture_network(config).eval()
    assert model.backbone.classify(model.backbone.start(2)).shape == (2, config.num_classes)


def test_one_picture_may_be_updated_with_many_looks() -> None:
    model = made("cnn")
    content = torch.randn(2, 5, CONFIG.channels * CONFIG.glimpse_size**2, generator=torch.Generator().manual_seed(0))
    where = model.grid.locations()[:5]
    belief = model.backbone.start(2)
    together = model.backbone.update(belief.unsqueeze(1), content, where).hidden
    for look in range(5):
        alone = model.backbone.update(belief, content[:, look], where[look].expand(2, 2)).hidden
        assert torch.equal(together[:, look], alone)


def test_with_flip_tta_it_sees_the_picture_and_its_mirror_image() -> None:
    images = (torch.rand(5, *SHAPE, generator=torch.Generator().manual_seed(0)) * 255).to(torch.uint8)
    agent = Agent(made("cnn").eval(), "abc", policy=RandomPolicy())

    def probabilities(pictures: Tensor, *, flip_tta: bool) -> Tensor:
        agent.flip_tta = flip_tta
        test = Split(pictures, torch.zeros(len(images), dtype=torch.int64))
        subject = Subject(agent=agent, method=METHODS["cnn"], test=test, num_scenes=5, seed=0, batch_size=2)
        return exact_pass(subject).log_probabilities.exp()

    alone, mirrored = probabilities(images, flip_tta=False), probabilities(images.flip(-1), flip_tta=False)
    assert not torch.allclose(alone, mirrored)
    torch.testing.assert_close(probabilities(images, flip_tta=True), (alone + mirrored) / 2, rtol=1e-4, atol=1e-5)
