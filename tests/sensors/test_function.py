"""Any Python callable as a sensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from infogaze import CallableSensor, ImageSensor, InfogazeError, LookFailed, Retrying, Scale, Seen
from tests.support.tiny import CONFIG, scenes, tiny_agent

AGENT = tiny_agent()
SIDE = CONFIG.glimpse_size
IMAGE = scenes(1)[0].permute(1, 2, 0).numpy()  # [H, W, C]


def crop(row: float, col: float) -> np.ndarray:
    return IMAGE[int(row) : int(row) + SIDE, int(col) : int(col) + SIDE]


@pytest.mark.parametrize(
    "snap",
    [
        crop,
        lambda row, col: crop(row, col).transpose(2, 0, 1),
        lambda row, col: torch.from_numpy(crop(row, col).copy()),
        lambda row, col: np.repeat(np.repeat(crop(row, col), 3, 0), 3, 1),
        lambda row, col: crop(row, col).astype(np.float32) / 255,
    ],
    ids=["channels last", "channels first", "a tensor", "three times as fine", "floats"],
)
def test_a_callable_is_as_good_as_its_image(snap: Any) -> None:
    plain = AGENT.run(ImageSensor(scenes(1), SIDE))
    episode = AGENT.run(CallableSensor(snap, SIDE))
    for look, same in zip(episode.history, plain.history, strict=True):
        assert torch.equal(look.location, same.location)
        torch.testing.assert_close(look.probabilities, same.probabilities)


def test_a_stage_is_driven_in_micrometres_and_says_where_it_was() -> None:
    scale = Scale(glimpse_size=SIDE, um_per_pixel=0.5, x=100.0, y=-40.0, y_grows_up=True)
    asked = []

    def snap(x: float, y: float) -> tuple[np.ndarray, tuple[float, float]]:
        asked.append((x, y))
        row, col = scale.from_stage((x, y)).tolist()
        return crop(row, col), (x + 0.1, y)

    episode = AGENT.run(CallableSensor(snap, SIDE, scale=scale))
    plain = AGENT.run(ImageSensor(scenes(1), SIDE), first=episode.history[0].location.round().long())
    assert asked[0] == tuple(scale.to_stage(plain.history[0].location)[0].tolist())
    for (x, y), look in zip(asked, episode.history, strict=True):
        last = CONFIG.width - SIDE
        row, col = scale.from_stage((x + 0.1, y)).tolist()
        torch.testing.assert_close(look.location, torch.tensor([[row, min(col, last)]], dtype=torch.float64))


def test_scenes_side_by_side_have_a_callable_each_and_fail_each_for_itself() -> None:
    images = scenes(3)

    def over(scene: int) -> Any:
        def snap(row: float, col: float) -> Tensor:
            if scene == 1:
                raise LookFailed("no light")
            return images[scene, :, int(row) : int(row) + SIDE, int(col) : int(col) + SIDE]

        return snap

    episode = AGENT.run(CallableSensor([over(scene) for scene in range(3)], SIDE), batch=3)
    plain = AGENT.run(ImageSensor(images, SIDE), batch=3)
    assert episode.looks_taken.tolist() == [4, 0, 4]
    assert episode.ended_by[1] == "no location left"
    for scene in (0, 2):
        assert torch.equal(episode.probabilities[scene], plain.probabilities[scene])
    with pytest.raises(LookFailed):
        CallableSensor(over(1), SIDE).look([[0, 0]])


def test_no_place_is_photographed_twice_for_a_failure_beside_it() -> None:
    taken: list[tuple[int, float, float]] = []

    def over(scene: int) -> Any:
        def snap(row: float, col: float) -> np.ndarray:
            taken.append((scene, row, col))
            if scene == 1 and len(taken) % 3:
                raise LookFailed
            return crop(row, col)

        return snap

    episode = AGENT.run(Retrying(CallableSensor([over(0), over(1), over(2)], SIDE), attempts=2), batch=3)
    assert episode.looks_taken.tolist() == [4, 4, 4]
    for scene in (0, 2):
        asked = [(row, col) for number, row, col in taken if number == scene]
        assert asked == [tuple(look.location[scene].tolist()) for look in episode.history]
    assert len([one for one in taken if one[0] == 1]) > 4


def test_one_of_several_may_say_where_it_was() -> None:
    sensor = CallableSensor([crop, lambda row, col: (crop(row, col), (row + 0.25, col))], SIDE)
    seen = sensor.look([[2, 2], [4, 4]])
    assert isinstance(seen, Seen)
    assert torch.as_tensor(seen.at).tolist() == [[2.0, 2.0], [4.25, 4.0]]
    assert seen.failed == [False, False]


def test_grey_is_repeated_and_deep_values_need_their_white() -> None:
    deep = np.full((SIDE, SIDE), 1000, np.uint16)
    deep[0, 0] = 5000
    glimpse = CallableSensor(lambda row, col: deep, SIDE, channels=3, white=4000).look([[0, 0]])
    assert isinstance(glimpse, Tensor)
    assert glimpse.shape == (1, 3, SIDE, SIDE)
    assert glimpse[0, :, 0, 0].tolist() == [1.0] * 3
    assert glimpse[0, :, 1, 1].tolist() == [0.25] * 3
    with pytest.raises(InfogazeError, match="uint16; give white="):
        CallableSensor(lambda row, col: deep, SIDE).look([[0, 0]])


def test_what_is_no_crop_is_refused_by_name() -> None:
    def refused(answer: Any, words: str, **options: Any) -> None:
        with pytest.raises(InfogazeError, match=words):
            CallableSensor(lambda row, col: answer, SIDE, **options).look([[0, 0]])

    refused(np.zeros((3, 4), np.uint8), r"shape \(3, 4, 1\)")
    refused(np.zeros((0, 0), np.uint8), "square")
    refused(np.zeros((3, 3), np.uint8), "3 pixels a side; at least 4")
    refused(np.zeros((4, 4, 2), np.uint8), "2 channels; the model takes 3", channels=3)
    refused((np.zeros((4, 4), np.uint8), (1.0, 2.0, 3.0)), "reported")
    with pytest.raises(InfogazeError, match="snap is"):
        CallableSensor([], SIDE)
    with pytest.raises(InfogazeError, match="glimpses of 8 pixels, and these have 4"):
        CallableSensor(crop, SIDE, scale=Scale(glimpse_size=8, um_per_pixel=1.0))
    with pytest.raises(InfogazeError, match="white is 0"):
        CallableSensor(crop, SIDE, white=0.0)
    with pytest.raises(InfogazeError, match="channels is 0"):
        CallableSensor(crop, SIDE, channels=0)
    with pytest.raises(InfogazeError, match="glimpse_size is 0"):
        CallableSensor(crop, 0)
    with pytest.raises(InfogazeError, match=r"\(1, 2\) is expected"):
        CallableSensor(crop, SIDE).look([[0, 0], [0, 0]])
