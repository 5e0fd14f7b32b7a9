from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from infogaze import METHODS, Agent, ImageSensor, InfogazeError
from infogaze.data.sets import Split
from infogaze.evaluation.rollouts import roll_out
from infogaze.grid import extract_grid
from infogaze.methods.oracle import Oracle, true_gain
from infogaze.nn.belief import Belief
from infogaze.nn.model import GlimpseClassifier
from infogaze.nn.pixels import normalise_pixels
from tests.support.methods import agent_of, made
from tests.support.tiny import CONFIG

SCENES, SIDE = 5, CONFIG.glimpse_size


def agent() -> Agent:
    return agent_of("oracle", made("oracle"))


def scenes(count: int = SCENES) -> Split:
    generator = torch.Generator().manual_seed(3)
    images = torch.randint(0, 256, (count, CONFIG.channels, CONFIG.height, CONFIG.width), generator=generator)
    return Split(images.to(torch.uint8), torch.randint(0, CONFIG.num_classes, (count,), generator=generator))


@torch.no_grad()
def tried_out(model: GlimpseClassifier, belief: Belief, split: Split) -> Tensor:
    """In float64: the gain in log p of the label by a look at each place [B, L], one at a time with the real glimpse."""
    exact = copy.deepcopy(model).double()
    gains = torch.zeros(len(split), CONFIG.grid.num_locations, dtype=torch.float64)
    for scene, (image, label) in enumerate(zip(split.images, split.labels.tolist(), strict=True)):
        held = Belief(belief.hidden[scene : scene + 1].double(), belief.memory[scene : scene + 1].double())
        now = exact.backbone.classify(held)[0, label]
        for place, (row, col) in enumerate(CONFIG.grid.locations().tolist()):
            glimpse = image[None, :, row : row + SIDE, col : col + SIDE].double() / 127.5 - 1
            after = exact.backbone.update(held, exact.backbone.features(glimpse), torch.tensor([[row, col]]))
            gains[scene, place] = exact.backbone.classify(after)[0, label] - now
    return gains


def test_it_looks_where_trying_every_place_gains_most() -> None:
    looker, split = agent(), scenes()
    sensor = ImageSensor(split.images, SIDE)
    episode = looker.episode(SCENES, policy=Oracle().for_scenes(split.images, split.labels))
    while not episode.done:
        where = episode.next_location()
        gains = tried_out(looker.model, episode.belief, split)
        torch.testing.assert_close(episode.next_gain.flatten(1).double(), gains, rtol=1e-3, atol=1e-3)
        there = gains[CONFIG.grid.at(where)]
        best = gains.masked_fill(~episode.candidates.flatten(1), -torch.inf).amax(1)
        assert bool((there >= best - 1e-3 - 1e-3 * best.abs()).all())
        episode.observe(sensor.look(where))


def test_its_gain_is_the_one_that_then_happens() -> None:
    looker, split = agent(), scenes()
    done = looker.run(
        ImageSensor(split.images, SIDE), batch=SCENES, policy=Oracle().for_scenes(split.images, split.labels)
    )
    index = torch.arange(SCENES)
    for before, after in zip(done.history, done.history[1:], strict=False):
        happened = (after.probabilities[index, split.labels] / before.probabilities[index, split.labels]).log()
        place = CONFIG.grid.nearest(after.location)
        torch.testing.assert_close(after.gain.flatten(1)[index, place], happened, rtol=1e-3, atol=1e-3)


def test_it_sees_the_label_and_the_scene() -> None:
    model, split = made("oracle").eval(), scenes()
    belief = model.backbone.start(SCENES)
    with torch.no_grad():
        content = model.backbone.features(normalise_pixels(extract_grid(split.images, CONFIG.grid)))
        gain = true_gain(model, belief, content=content, labels=split.labels)
        other_label = true_gain(model, belief, content=content, labels=(split.labels + 1) % CONFIG.num_classes)
        other_scene = true_gain(model, belief, content=content.roll(1, 0), labels=split.labels)
    assert not torch.allclose(gain, other_label)
    assert not torch.allclose(gain, other_scene)


def test_without_the_scene_it_refuses_in_one_line_that_says_how() -> None:
    split = scenes()
    with pytest.raises(InfogazeError, match="not deployable.*for_scenes") as refusal:
        agent().run(ImageSensor(split.images, SIDE), batch=SCENES)
    assert "\n" not in str(refusal.value)


def test_in_a_rollout_it_is_shown_each_batch_its_own_scenes() -> None:
    looker, split = agent(), scenes(7)
    whole, parts = (roll_out(looker, split, batch_size=batch_size) for batch_size in (7, 3))
    assert torch.equal(whole.locations[:, 0], parts.locations[:, 0])
    # Of two places as good as each other rounding may choose either; the map before the second look tells.
    torch.testing.assert_close(whole.gains[:, 1], parts.gains[:, 1], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(whole.probabilities[:, 0], parts.probabilities[:, 0], rtol=1e-4, atol=1e-5)


def test_it_is_marked_as_what_cannot_be_deployed() -> None:
    assert METHODS["oracle"].sees == "scene"
    assert "not deployable" in METHODS["oracle"].summary
    blind = {name for name, method in METHODS.items() if method.sees == "looks"}
    assert blind == set(METHODS) - {"oracle", "cnn"}


def test_its_networks_are_trained_as_those_of_the_random_baseline() -> None:
    assert METHODS["oracle"].phases is METHODS["random"].phases
    assert METHODS["oracle"].build is METHODS["random"].build
