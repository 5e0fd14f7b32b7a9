"""A microscope looks where an episode asks, and nothing waits for ever: against pymmcore-plus itself, with devices made in Python."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from useq import MDAEvent

import infogaze
from infogaze import Agent, Confident, Episode, ImageSensor, InfogazeError
from infogaze.adapters.micromanager import scan
from infogaze.data.digits import digits
from infogaze.gaze.scale import Scale
from tests.support.docs import blocks_of
from tests.support.microscope import Microscope
from tests.support.paths import ROOT

SCALE = Scale(glimpse_size=8, um_per_pixel=2.5, x=-1000.0, y=400.0, y_grows_up=True)
TIMEOUT = 60.0
"""Seconds that no test waits for, unless something hangs."""


@pytest.fixture(scope="module")
def agent() -> Agent:
    return infogaze.load("digits")


@pytest.fixture(scope="module")
def scene() -> Tensor:
    return digits(copies=1).test.images[7]


def locations(episode: Episode) -> list[list[float]]:
    return torch.cat([look.location for look in episode.history]).tolist()


def position(location: list[float]) -> tuple[float, float]:
    x, y = SCALE.to_stage(location).tolist()
    return x, y


def test_the_looks_and_the_label_are_those_of_run(agent: Agent, scene: Tensor) -> None:
    plain = agent.run(ImageSensor(scene[None], 8), seed=3)
    microscope = Microscope(scene, SCALE)
    episode = scan(microscope.core, agent.episode(seed=3), SCALE, timeout=TIMEOUT)
    assert episode.done
    assert locations(episode) == locations(plain)
    torch.testing.assert_close(episode.probabilities, plain.probabilities)
    assert microscope.stage.sent == [position(where) for where in locations(plain)]
    assert microscope.camera.frames == agent.num_looks
    assert not microscope.core.mda.is_running()


def test_the_episode_is_held_by_the_thread_that_called(agent: Agent, scene: Tensor) -> None:
    class Watched(Episode):
        threads: set[str]

        def observe(self, *args: object, **kwargs: object) -> None:
            threads.add(threading.current_thread().name)
            super().observe(*args, **kwargs)  # type: ignore[arg-type]

    threads: set[str] = set()
    episode = agent.episode()
    episode.__class__ = Watched
    microscope = Microscope(scene, SCALE)
    scan(microscope.core, episode, SCALE, timeout=TIMEOUT)
    assert threads == {threading.current_thread().name}
    assert not microscope.camera.threads & threads


def test_where_the_stage_really_was_is_taken_in(agent: Agent, scene: Tensor) -> None:
    """Five micrometres are two pixels."""
    microscope = Microscope(scene, SCALE, drift=(5.0, -5.0))
    episode = scan(microscope.core, agent.episode(seed=1), SCALE, timeout=TIMEOUT)
    asked = torch.tensor([SCALE.from_stage(sent).tolist() for sent in microscope.stage.sent])
    torch.testing.assert_close(torch.tensor(locations(episode)), (asked + 2).clamp(max=24).float())
    assert len(set(microscope.stage.sent)) == len(microscope.stage.sent), "no place is asked for twice"


def test_it_stops_by_the_rule(agent: Agent, scene: Tensor) -> None:
    rule = Confident(0.6)
    plain = agent.run(ImageSensor(scene[None], 8), stop=rule)
    assert plain.ended_by == ("rule",)
    episode = scan(Microscope(scene, SCALE).core, agent.episode(stop=rule), SCALE, timeout=TIMEOUT)
    assert episode.ended_by == ("rule",)
    assert locations(episode) == locations(plain)


def test_what_all_looks_have_in_common_is_set(agent: Agent, scene: Tensor) -> None:
    microscope = Microscope(scene, SCALE)
    seen = []
    microscope.core.mda.events.frameReady.connect(lambda image, event: seen.append(event.metadata["sample"]))
    event = MDAEvent(exposure=3.0, metadata={"sample": "B7"})
    scan(microscope.core, agent.episode(budget=2), SCALE, event=event, timeout=TIMEOUT)
    assert microscope.camera.exposure == 3.0
    assert seen == ["B7", "B7"]


def test_a_frame_is_made_a_glimpse_by_the_users_own_function(agent: Agent, scene: Tensor) -> None:
    plain = agent.run(lambda where: 255 - ImageSensor(scene[None], 8).look(where))
    episode = scan(
        Microscope(scene, SCALE).core, agent.episode(), SCALE, to_glimpse=lambda frame: 255 - frame, timeout=TIMEOUT
    )
    torch.testing.assert_close(episode.probabilities, plain.probabilities)


@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 1), (1, 8, 8)])
def test_channels_may_be_first_or_last_or_not_there(agent: Agent, scene: Tensor, shape: tuple[int, ...]) -> None:
    plain = agent.run(ImageSensor(scene[None], 8), budget=2)
    core, episode = Microscope(scene, SCALE).core, agent.episode(budget=2)
    scan(core, episode, SCALE, to_glimpse=lambda frame: frame.reshape(shape), timeout=TIMEOUT)
    torch.testing.assert_close(episode.probabilities, plain.probabilities)


def test_a_frame_that_does_not_say_where_it_was_taken_was_taken_where_it_was_asked_for(
    agent: Agent, scene: Tensor
) -> None:
    plain, microscope = agent.run(ImageSensor(scene[None], 8)), Microscope(scene, SCALE)
    assert microscope.core.mda.engine is not None
    microscope.core.mda.engine.include_frame_position_metadata = False
    positions: list[object] = []
    microscope.core.mda.events.frameReady.connect(lambda image, event, meta: positions.append(meta.get("position")))
    episode = scan(microscope.core, agent.episode(), SCALE, timeout=TIMEOUT)
    assert positions == [None] * agent.num_looks
    assert locations(episode) == locations(plain)


def fail_at(*frames: int) -> object:
    def before(number: int) -> None:
        if number in frames:
            raise RuntimeError("no light")

    return before


def test_a_lost_frame_is_taken_again(agent: Agent, scene: Tensor) -> None:
    plain = agent.run(ImageSensor(scene[None], 8))
    microscope = Microscope(scene, SCALE)
    microscope.camera.before = fail_at(1, 4)  # type: ignore[assignment]
    episode = scan(microscope.core, agent.episode(), SCALE, timeout=TIMEOUT)
    assert locations(episode) == locations(plain)
    torch.testing.assert_close(episode.probabilities, plain.probabilities)
    assert microscope.camera.frames == agent.num_looks + 2


def test_a_place_whose_frames_are_all_lost_is_left_out(agent: Agent, scene: Tensor) -> None:
    microscope = Microscope(scene, SCALE)
    microscope.camera.before = fail_at(3, 4, 5)  # type: ignore[assignment]
    episode = scan(microscope.core, agent.episode(), SCALE, attempts=3, timeout=TIMEOUT)
    assert len(episode.history) == agent.num_looks
    lost = microscope.stage.sent[2]
    assert microscope.stage.sent[2:5] == [lost] * 3
    assert lost not in [position(where) for where in locations(episode)]


def test_a_camera_that_gives_no_frame_at_all_ends_the_episode(agent: Agent, scene: Tensor) -> None:
    microscope = Microscope(scene, SCALE)
    microscope.camera.before = fail_at(*range(1000))  # type: ignore[assignment]
    episode = scan(microscope.core, agent.episode(), SCALE, attempts=1, timeout=TIMEOUT)
    assert episode.ended_by == ("no location left",)
    assert len(microscope.stage.sent) == agent.model.grid.num_locations


@pytest.fixture
def hanging(scene: Tensor) -> Iterator[Microscope]:
    """A microscope whose third frame takes until the test is over."""
    microscope, free = Microscope(scene, SCALE), threading.Event()

    def before(number: int) -> None:
        if number == 3:
            free.wait()

    microscope.camera.before = before
    yield microscope
    free.set()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(TIMEOUT)


def test_a_microscope_that_hangs_is_one_line_and_the_episode_goes_on_later(
    agent: Agent, scene: Tensor, hanging: Microscope
) -> None:
    episode = agent.episode()
    with pytest.raises(InfogazeError, match=r"^the microscope did nothing for 0.2 seconds, sent to x .*timeout=$"):
        scan(hanging.core, episode, SCALE, timeout=0.2)
    assert len(episode.history) <= 2
    with pytest.raises(InfogazeError, match="running already"):
        scan(hanging.core, episode, SCALE)
    scan(Microscope(scene, SCALE).core, episode, SCALE, timeout=TIMEOUT)
    assert locations(episode) == locations(agent.run(ImageSensor(scene[None], 8)))


def test_an_acquisition_that_is_cancelled_ends_and_the_episode_goes_on_later(agent: Agent, scene: Tensor) -> None:
    microscope = Microscope(scene, SCALE)
    events = microscope.core.mda.events
    finished: list[str] = []
    events.sequenceCanceled.connect(lambda: finished.append("cancelled"))

    def cancel(image: np.ndarray) -> None:
        microscope.core.mda.cancel()

    events.frameReady.connect(cancel)
    episode = scan(microscope.core, agent.episode(), SCALE, timeout=TIMEOUT)
    assert len(episode.history) == 1
    assert finished == ["cancelled"]
    assert not microscope.core.mda.is_running()
    events.frameReady.disconnect(cancel)
    scan(microscope.core, episode, SCALE, timeout=TIMEOUT)
    assert locations(episode) == locations(agent.run(ImageSensor(scene[None], 8)))


def test_the_keyboard_interrupts_it(agent: Agent, scene: Tensor) -> None:
    microscope = Microscope(scene, SCALE)

    def before(number: int) -> None:
        if number == 3:
            os.kill(os.getpid(), signal.SIGINT)

    microscope.camera.before = before
    episode = agent.episode()
    # A process of pytest-xdist may have another answer to Ctrl-C.
    answer = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            scan(microscope.core, episode, SCALE, timeout=TIMEOUT)
    finally:
        signal.signal(signal.SIGINT, answer)
    assert not microscope.core.mda.is_running()
    assert len(episode.history) in {2, 3}
    microscope.camera.before = lambda number: None
    scan(microscope.core, episode, SCALE, timeout=TIMEOUT)
    assert locations(episode) == locations(agent.run(ImageSensor(scene[None], 8)))


def test_a_wrong_frame_is_one_line_and_leaves_nothing_running(agent: Agent, scene: Tensor) -> None:
    microscope = Microscope(scene, SCALE)
    with pytest.raises(InfogazeError, match="glimpses have shape"):
        scan(microscope.core, agent.episode(), SCALE, to_glimpse=lambda frame: frame[:4], timeout=TIMEOUT)
    assert not microscope.core.mda.is_running()


@pytest.mark.slow
def test_a_pause_is_not_silence(agent: Agent, scene: Tensor) -> None:
    microscope = Microscope(scene, SCALE)
    pause = microscope.core.mda.toggle_pause

    def before(number: int) -> None:
        if number == 2:
            pause()
            threading.Timer(12.0, pause).start()

    microscope.camera.before = before
    episode = scan(microscope.core, agent.episode(budget=3), SCALE, timeout=10.0)
    assert episode.ended_by == ("budget",)


def test_a_scan_whose_program_died_is_taken_up_where_it_was(agent: Agent, scene: Tensor, tmp_path: Path) -> None:
    microscope, file = Microscope(scene, SCALE), tmp_path / "scan.episode"
    microscope.core.mda.events.frameReady.connect(lambda image, event: last(event.metadata["infogaze_look"]))

    def last(number: int) -> None:
        if number == 4:
            microscope.core.mda.cancel()

    scan(microscope.core, agent.episode(), SCALE, save_to=file, timeout=TIMEOUT)
    episode = agent.resume(file)
    assert len(episode.history) == 4
    scan(Microscope(scene, SCALE).core, episode, SCALE, timeout=TIMEOUT)
    assert locations(episode) == locations(agent.run(ImageSensor(scene[None], 8)))


QT = """
import infogaze
from infogaze import ImageSensor
from infogaze.adapters.micromanager import scan
from infogaze.data.digits import digits
from infogaze.gaze.scale import Scale
from qtpy.QtCore import QCoreApplication, QObject
app = QCoreApplication([])
from tests.support.microscope import Microscope
agent, scene, scale = infogaze.load("digits"), digits(copies=1).test.images[7], Scale(glimpse_size=8, um_per_pixel=2.5)
microscope = Microscope(scene, scale)
assert isinstance(microscope.core.mda.events, QObject)
episode = scan(microscope.core, agent.episode(), scale, timeout=60.0)
plain = agent.run(ImageSensor(scene[None], 8))
assert [look.location.tolist() for look in episode.history] == [look.location.tolist() for look in plain.history]
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("qtpy") is None, reason="needs qtpy and a Qt")
def test_in_a_program_with_qt_no_event_loop_is_needed() -> None:
    done = subprocess.run([sys.executable, "-c", QT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_acquisition_that_fails_is_one_line(agent: Agent, scene: Tensor) -> None:
    microscope = Microscope(scene, SCALE)
    microscope.core.setShutterDevice("")  # without one, pymmcore-plus's engine cannot finish a frame
    episode = agent.episode()
    with pytest.raises(InfogazeError, match="ended by an error, before the episode did"):
        scan(microscope.core, episode, SCALE, timeout=TIMEOUT)
    assert not episode.history
    assert not microscope.core.mda.is_running()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"attempts": 0}, "attempts is 0"), ({"timeout": 0.0}, "timeout is 0.0"), ({"timeout": float("nan")}, "timeout is nan")],
)  # fmt: skip
def test_wrong_values_are_one_line(agent: Agent, scene: Tensor, options: dict[str, float], message: str) -> None:
    with pytest.raises(InfogazeError, match=message):
        scan(Microscope(scene, SCALE).core, agent.episode(), SCALE, **options)  # type: ignore[arg-type]
    with pytest.raises(InfogazeError, match="2 scenes"):
        scan(Microscope(scene, SCALE).core, agent.episode(2), SCALE)


def test_the_page_of_the_docs_runs(agent: Agent, scene: Tensor) -> None:
    (block,) = blocks_of("docs/adapters/micromanager.md")
    names: dict[str, Any] = {}
    exec(block.text, names)
    episode = names["look"](Microscope(scene, names["scale"]).core)
    assert locations(episode) == locations(agent.run(ImageSensor(scene[None], 8), stop=Confident(0.95)))
