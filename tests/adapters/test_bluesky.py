"""A RunEngine looks where an episode asks: against bluesky and bluesky-adaptive themselves, with simulated devices."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bluesky import RunEngine
from bluesky.plans import list_scan
from bluesky.utils import RunEngineInterrupted
from bluesky_adaptive.plans import acquire_baseline, optimize, optimize_in_run, sample_suggestions
from bluesky_adaptive.protocols import (
    Checkpointable,
    EvaluationFunction,
    OptimizationProblem,
    Optimizer,
    SupportsStoppingCriteria,
    TrialFaultAware,
)
from event_model import pack_event_page
from ophyd.sim import NumpySeqHandler, SynSignalWithRegistry
from torch import Tensor

import infogaze
from infogaze import Agent, Confident, Episode, ImageSensor, InfogazeError
from infogaze.adapters.bluesky import GlimpseDocuments, GlimpseOptimizer, scan
from infogaze.data.digits import digits
from infogaze.gaze.scale import Scale
from tests.support.beamline import Beamline

SCALE = Scale(glimpse_size=8, um_per_pixel=2.5, x=-1000.0, y=400.0, y_grows_up=True)


@pytest.fixture(scope="module")
def agent() -> Agent:
    return infogaze.load("digits")


@pytest.fixture(scope="module")
def scene() -> Tensor:
    return digits(copies=1).test.images[7]


@pytest.fixture
def run() -> RunEngine:
    return RunEngine({})


def locations(episode: Episode) -> list[list[float]]:
    return torch.cat([look.location for look in episode.history]).tolist()


def test_the_looks_and_the_label_are_those_of_run(agent: Agent, scene: Tensor, run: RunEngine) -> None:
    plain = agent.run(ImageSensor(scene[None], 8), seed=3)
    beamline, episode = Beamline(scene, SCALE), agent.episode(seed=3)
    run(scan(episode, SCALE, axes=beamline.axes, detector=beamline.detector, image="camera_image"))
    assert episode.done
    assert locations(episode) == locations(plain) == beamline.seen
    torch.testing.assert_close(episode.probabilities, plain.probabilities)


def test_what_is_driven_is_what_bluesky_adaptive_calls_an_optimizer(agent: Agent) -> None:
    optimizer = GlimpseOptimizer(agent.episode(), SCALE, axes=("x", "y"))
    for protocol in (Optimizer, SupportsStoppingCriteria, TrialFaultAware):
        assert isinstance(optimizer, protocol)
    assert isinstance(GlimpseDocuments("image", readbacks={}), EvaluationFunction)


def test_the_plan_ends_by_the_stop_rule(agent: Agent, scene: Tensor, run: RunEngine) -> None:
    rule = Confident(0.6)
    plain = agent.run(ImageSensor(scene[None], 8), stop=rule)
    assert plain.ended_by == ("rule",)
    beamline, episode = Beamline(scene, SCALE), agent.episode(stop=rule)
    run(scan(episode, SCALE, axes=beamline.axes, detector=beamline.detector, image="camera_image"))
    assert episode.ended_by == ("rule",)
    assert locations(episode) == locations(plain)
    assert beamline.detector.frames == len(plain.history)


def test_documents_hold_every_glimpse_and_where_the_axes_stood(agent: Agent, scene: Tensor, run: RunEngine) -> None:
    beamline, episode = Beamline(scene, SCALE), agent.episode()
    documents: list[tuple[str, Mapping[str, Any]]] = []
    run.subscribe(lambda name, doc: documents.append((name, doc)))
    run(scan(episode, SCALE, axes=beamline.axes, detector=beamline.detector, image="camera_image"))
    acquired = [doc["data"] for name, doc in documents if name == "event" and "camera_image" in doc["data"]]
    assert len(acquired) == agent.num_looks
    stood = torch.tensor([[data["stage_x"], data["stage_y"]] for data in acquired])
    torch.testing.assert_close(SCALE.from_stage(stood).float(), torch.tensor(locations(episode)))
    told = [doc["data"] for name, doc in documents if name == "event" and "glimpse" in doc["data"]]
    assert len(told) == agent.num_looks - 1, "bluesky-adaptive tells nothing of the step after which it stops"
    for one, other in zip(told, acquired, strict=False):
        np.testing.assert_array_equal(one["glimpse"], other["camera_image"])
        assert one["stage_x_readback"] == other["stage_x"]
    assert {doc["exit_status"] for name, doc in documents if name == "stop"} == {"success"}


def test_data_outside_the_documents_are_opened(agent: Agent, scene: Tensor, run: RunEngine, tmp_path: Any) -> None:
    plain, beamline, episode = agent.run(ImageSensor(scene[None], 8)), Beamline(scene, SCALE), agent.episode()
    detector = SynSignalWithRegistry(beamline.window, name="camera", save_path=str(tmp_path))
    with_handlers = functools.partial(scan, scale=SCALE, axes=beamline.axes, detector=detector)
    with pytest.raises(InfogazeError, match=r"^'camera' is data outside the documents; give handlers="):
        run(with_handlers(agent.episode()))
    run(with_handlers(episode, handlers={"NPY_SEQ": NumpySeqHandler}))
    assert locations(episode) == locations(plain)
    assert len(list(tmp_path.iterdir())) == 1 + agent.num_looks, "with the one that nothing opened"


def test_events_may_come_in_pages(agent: Agent, scene: Tensor, run: RunEngine) -> None:
    beamline, pages = Beamline(scene, SCALE), GlimpseDocuments("camera_image", readbacks={"stage_x": "stage_x"})

    def paged(name: str, doc: Any) -> None:
        if name == "event":
            name, doc = "event_page", pack_event_page(doc)
        pages.receive(name, doc)

    run.subscribe(paged)
    uids: list[str] = []
    run.subscribe(lambda name, doc: uids.append(doc["uid"]), "start")
    run(list_scan([beamline.detector], beamline.x, [-980.0]))  # type: ignore[arg-type]
    (outcome,) = pages(uids[0], [{"_id": "one"}])
    np.testing.assert_array_equal(outcome.pop("glimpse"), beamline.window())
    assert outcome == {"_id": "one", "stage_x_readback": -980.0}


def test_where_the_axes_really_stood_is_taken_in(agent: Agent, scene: Tensor, run: RunEngine) -> None:
    """Five micrometres are two pixels."""
    beamline, episode = Beamline(scene, SCALE, drift=lambda value: value + 5.0), agent.episode(first=(12, 8))
    run(scan(episode, SCALE, axes=beamline.axes, detector=beamline.detector, image="camera_image"))
    assert locations(episode)[0] == [10.0, 10.0]
    assert locations(episode) == beamline.seen


def test_axes_count_in_their_own_unit(agent: Agent, scene: Tensor, run: RunEngine) -> None:
    plain = agent.run(ImageSensor(scene[None], 8))
    beamline, episode = Beamline(scene, SCALE, micrometres=1000.0), agent.episode()
    run(scan(episode, SCALE, axes=beamline.axes, detector=beamline.detector, image="camera_image", unit="mm"))
    assert locations(episode) == locations(plain) == beamline.seen
    assert -1.0 <= beamline.x.position <= -0.92


def test_a_picture_is_made_a_glimpse_by_the_users_own_function(agent: Agent, scene: Tensor, run: RunEngine) -> None:
    plain = agent.run(lambda where: 255 - ImageSensor(scene[None], 8).look(where))
    beamline, episode = Beamline(scene, SCALE), agent.episode()
    run(
        scan(
            episode,
            SCALE,
            axes=beamline.axes,
            detector=beamline.detector,
            image="camera_image",
            to_glimpse=lambda picture: 255 - picture[None],
        )
    )
    torch.testing.assert_close(episode.probabilities, plain.probabilities)


def failing(*frames: int) -> Any:
    def before(number: int) -> bool:
        if number in frames:
            raise RuntimeError("no beam")
        return True

    return before


def test_a_look_that_failed_is_made_again(agent: Agent, scene: Tensor, run: RunEngine) -> None:
    plain, beamline, episode = agent.run(ImageSensor(scene[None], 8)), Beamline(scene, SCALE), agent.episode()
    beamline.detector.before = failing(1, 4)
    run(scan(episode, SCALE, axes=beamline.axes, detector=beamline.detector, image="camera_image"))
    assert locations(episode) == locations(plain)
    assert beamline.detector.frames == agent.num_looks + 2


def test_a_place_whose_looks_all_fail_is_left_out(agent: Agent, scene: Tensor, run: RunEngine) -> None:
    plain, beamline, episode = agent.run(ImageSensor(scene[None], 8)), Beamline(scene, SCALE), agent.episode()
    beamline.detector.before = failing(3, 4, 5)
    run(scan(episode, SCALE, axes=beamline.axes, detector=beamline.detector, image="camera_image", attempts=3))
    assert len(episode.history) == agent.num_looks
    assert locations(episode)[:2] == locations(plain)[:2]
    assert locations(plain)[2] not in locations(episode)


def test_a_detector_that_never_answers_is_not_waited_for(agent: Agent, scene: Tensor, run: RunEngine) -> None:
    plain, beamline, episode = agent.run(ImageSensor(scene[None], 8)), Beamline(scene, SCALE), agent.episode()
    beamline.detector.before = lambda number: number != 2
    devices = functools.partial(scan, episode, SCALE, axes=beamline.axes, detector=beamline.detector)
    run(devices(image="camera_image", timeout=2.0, attempts=20))  # so many because a busy machine may be late itself
    assert locations(episode) == locations(plain)
    assert beamline.detector.frames > agent.num_looks


def test_a_mistake_ends_the_plan_and_is_no_look_that_failed(agent: Agent, scene: Tensor, run: RunEngine) -> None:
    beamline, episode = Beamline(scene, SCALE), agent.episode()
    devices = functools.partial(scan, episode, SCALE, axes=beamline.axes, detector=beamline.detector)
    with pytest.raises(InfogazeError, match=r"^no event of the run holds 'camera'; give image="):
        run(devices())
    with pytest.raises(ZeroDivisionError):
        run(devices(image="camera_image", to_glimpse=lambda picture: picture[1 // 0]))
    with pytest.raises(InfogazeError, match="glimpses have shape"):
        run(devices(image="camera_image", to_glimpse=lambda picture: picture[:4]))
    assert beamline.detector.frames == 3
    assert not episode.history
    assert bool(episode.candidates.all())


def test_a_plan_that_its_user_aborts_leaves_the_episode_as_it_is(agent: Agent, scene: Tensor, run: RunEngine) -> None:
    plain, beamline, episode = agent.run(ImageSensor(scene[None], 8)), Beamline(scene, SCALE), agent.episode()

    def pause(number: int) -> bool:
        if number == 3:
            threading.Thread(target=run.request_pause).start()  # as a user does, from another thread
            return False
        return True

    beamline.detector.before = pause
    devices = functools.partial(scan, episode, SCALE, axes=beamline.axes, detector=beamline.detector)
    with pytest.raises(RunEngineInterrupted):
        run(devices(image="camera_image", attempts=1))
    run.abort()
    assert len(episode.history) == 2
    run(devices(image="camera_image"))
    assert locations(episode) == locations(plain)


def test_a_scan_whose_program_died_is_taken_up_where_it_was(
    agent: Agent, scene: Tensor, run: RunEngine, tmp_path: Path
) -> None:
    plain, beamline, file = agent.run(ImageSensor(scene[None], 8)), Beamline(scene, SCALE), tmp_path / "scan.episode"

    def die(number: int) -> bool:
        if number == 4:
            raise ZeroDivisionError
        return True

    beamline.detector.before = die
    devices = functools.partial(scan, axes=beamline.axes, detector=beamline.detector, image="camera_image")
    with pytest.raises(ZeroDivisionError):
        run(devices(agent.episode(), SCALE, save_to=file))
    episode = agent.resume(file)
    assert len(episode.history) == 3
    run(devices(episode, SCALE, save_to=file))
    assert locations(episode) == locations(plain)
    assert agent.resume(file).done, "the last look was written too"


def test_a_checkpoint_that_cannot_be_written_is_no_look_that_failed(
    agent: Agent, scene: Tensor, run: RunEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(optimizer: GlimpseOptimizer) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(GlimpseOptimizer, "checkpoint", full)
    beamline, episode = Beamline(scene, SCALE), agent.episode()
    devices = functools.partial(scan, axes=beamline.axes, detector=beamline.detector, image="camera_image")
    with pytest.raises(OSError, match="no space left"):
        run(devices(episode, SCALE, save_to=tmp_path / "scan.episode"))
    assert beamline.detector.frames == len(episode.history) == 1


def test_a_checkpoint_needs_a_file(agent: Agent) -> None:
    optimizer = GlimpseOptimizer(agent.episode(), SCALE, axes=("x", "y"))
    assert isinstance(optimizer, Checkpointable)
    with pytest.raises(InfogazeError, match="give save_to="):
        optimizer.checkpoint()


def parts(agent: Agent, beamline: Beamline) -> tuple[GlimpseOptimizer, GlimpseDocuments, OptimizationProblem[Any]]:
    """For a plan of one's own."""
    optimizer = GlimpseOptimizer(agent.episode(), SCALE, axes=("stage_x", "stage_y"))
    documents = GlimpseDocuments("camera_image", readbacks={"stage_x": "stage_x", "stage_y": "stage_y"})
    problem: OptimizationProblem[Any] = OptimizationProblem(
        optimizer=optimizer, actuators=beamline.axes, sensors=[beamline.detector], evaluation_function=documents
    )
    return optimizer, documents, problem


def test_its_parts_serve_bluesky_adaptives_own_plans(agent: Agent, scene: Tensor, run: RunEngine) -> None:
    plain = locations(agent.run(ImageSensor(scene[None], 8)))
    beamline = Beamline(scene, SCALE)
    for plan in (
        functools.partial(optimize, iterations=None),
        functools.partial(optimize, iterations=50),
        functools.partial(optimize_in_run, iterations=50),
    ):
        optimizer, documents, problem = parts(agent, beamline)
        token = run.subscribe(documents.receive)
        run(plan(problem))
        run.unsubscribe(token)
        assert locations(optimizer.episode) == plain


def test_a_place_of_the_users_own_is_taken_in_too(agent: Agent, scene: Tensor, run: RunEngine) -> None:
    beamline = Beamline(scene, SCALE)
    optimizer, documents, problem = parts(agent, beamline)
    run.subscribe(documents.receive)
    x, y = SCALE.to_stage([5, 7]).tolist()
    run(sample_suggestions(problem, [{"_id": "mine", "stage_x": x, "stage_y": y}]))
    run(acquire_baseline(problem, {"stage_x": x + 2.5, "stage_y": y}))
    assert locations(optimizer.episode) == [[5.0, 7.0], [5.0, 8.0]]


def test_the_best_point_is_the_look_that_told_most(agent: Agent, scene: Tensor, run: RunEngine) -> None:
    beamline = Beamline(scene, SCALE)
    optimizer, documents, problem = parts(agent, beamline)
    assert optimizer.get_best_points() == []
    run.subscribe(documents.receive)
    run(optimize(problem, iterations=None))
    ((number, where, outcome),) = optimizer.get_best_points()
    entropies = [np.log(10), *(float(look.entropy) for look in optimizer.episode.history)]
    told = -np.diff(entropies)
    assert told[number - 1] == told.max()
    assert outcome["entropy"] == entropies[number]
    look = optimizer.episode.history[number - 1]
    assert [where["stage_x"], where["stage_y"]] == SCALE.to_stage(look.location)[0].tolist()


def test_wrong_values_are_one_line(agent: Agent) -> None:
    for options, message in (
        ({"attempts": 0}, "attempts is 0"),
        ({"unit": "inch"}, "unit is 'inch'; nm, um, mm are allowed"),
    ):
        with pytest.raises(InfogazeError, match=message):
            GlimpseOptimizer(agent.episode(), SCALE, axes=("x", "y"), **options)
    with pytest.raises(InfogazeError, match="2 scenes"):
        GlimpseOptimizer(agent.episode(2), SCALE, axes=("x", "y"))
    with pytest.raises(InfogazeError, match="n_points is 4"):
        GlimpseOptimizer(agent.episode(), SCALE, axes=("x", "y")).suggest(4)
