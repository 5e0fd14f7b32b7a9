"""The scenes that were imagined, against the model's own pictures after each look."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from infogaze import METHODS, Belief, ImageSensor, scene_seeds
from infogaze.data.sets import Split
from infogaze.evaluation.exact_pass import exact_pass
from infogaze.evaluation.imagined import imagined_scenes
from infogaze.evaluation.measurement import Subject
from infogaze.evaluation.registry import MEASUREMENTS, measurements_for
from infogaze.evaluation.rollouts import roll_out
from infogaze.evaluation.showcase import showcase
from infogaze.nn.dictionary import Dictionary
from infogaze.nn.model import Model
from tests.support.methods import LOOKS, agent_of, made
from tests.support.tiny import CONFIG, scenes

SCENES, SEED = 7, 5
SPLIT = Split(scenes(SCENES), torch.arange(SCENES) % CONFIG.num_classes)


def dictionary_subject(method: str = "dictionary") -> Subject:
    model = made(method).double()  # so that rounding chooses no look
    if isinstance(model, Model) and isinstance(model.imagination, Dictionary):
        model.imagination.patches.uniform_(-1.0, 1.0, generator=torch.Generator().manual_seed(1))
    agent = agent_of(method, model)
    subject = Subject(agent=agent, method=METHODS[method], test=SPLIT, num_scenes=4, seed=SEED, batch_size=3)
    return replace(subject, records=exact_pass(subject))


@torch.no_grad()
def test_the_scenes_of_the_showcase_are_as_they_were_imagined_after_each_look() -> None:
    subject = dictionary_subject()
    found, shown = imagined_scenes(subject, lambda scenes: None), showcase(subject, lambda scenes: None)
    assert torch.equal(found.scenes, shown.scenes)
    model = subject.agent.model
    assert isinstance(model, Model)
    assert isinstance(model.imagination, Dictionary)
    for index, scene in enumerate(found.scenes.tolist()):
        seeds = scene_seeds(SEED, SCENES)[scene : scene + 1]
        sensor = ImageSensor(SPLIT.images[scene : scene + 1], CONFIG.glimpse_size)
        for look, taken in enumerate(subject.agent.run(sensor, seed=seeds).history):
            belief = Belief(taken.hidden, taken.hidden[:, :0])
            pixels = (model.imagination.picture(belief)[0] + 1.0) * 127.5
            assert float((found.pictures[index, look] - pixels).abs().max()) <= 0.51
            expected = model.imagination.uncertainty(belief).view(CONFIG.grid.rows, CONFIG.grid.cols)
            torch.testing.assert_close(found.uncertainty[index, look].double(), expected, rtol=1e-4, atol=1e-5)
    assert len(found.pictures[0]) == LOOKS
    assert len({picture.numpy().tobytes() for picture in found.pictures[0]}) == LOOKS, "another after each look"


def test_scenes_are_imagined_in_batches_of_any_size() -> None:
    agent = dictionary_subject().agent
    whole, parts = (roll_out(agent, SPLIT, seed=SEED, batch_size=size, imagine=True) for size in (SCENES, 3))
    assert whole.imagined is not None
    assert parts.imagined is not None
    assert parts.uncertainty is not None
    assert whole.imagined.shape == (SCENES, LOOKS, CONFIG.channels, CONFIG.height, CONFIG.width)
    assert float((whole.imagined.double() - parts.imagined.double()).abs().max()) <= 1
    assert parts.uncertainty.shape == (SCENES, LOOKS, CONFIG.grid.rows, CONFIG.grid.cols)


def test_nothing_is_drawn_unless_asked_for_or_where_nothing_imagined_has_pixels() -> None:
    assert roll_out(dictionary_subject().agent, SPLIT).imagined is None
    for method in ("paper", "random"):
        looked = roll_out(dictionary_subject(method).agent, SPLIT, imagine=True)
        assert looked.imagined is None
        assert looked.uncertainty is None
    with pytest.raises(ValueError, match="no pixels"):
        imagined_scenes(dictionary_subject("paper"), lambda scenes: None)


def test_scenes_are_imagined_of_methods_with_a_dictionary_alone() -> None:
    have = {name for name in METHODS if measurements_for(METHODS[name], ["imagined"])[1:]}
    assert have == {"infogaze", "dictionary"}
    assert MEASUREMENTS["imagined"].record.file == "imagined"
