"""Scores in files: complete, resumed after a kill, shared by shards, and never mixed with others."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import infogaze
from infogaze import ImageSensor, InfogazeError, ReadOptions, scene_seeds, score
from infogaze.cli.main import main
from infogaze.nn.distilled import DistilledGain
from infogaze.scoring.parts import parts_of
from tests.support.calls import refused
from tests.support.methods import agent_of, made
from tests.support.scoring import grey_agent, saved_model, scenes_of_noise, write_arrays, write_pictures
from tests.support.tiny import CONFIG

TRAIN, TEST = 14, 9
Row = dict[str, Any]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_arrays(tmp_path_factory.mktemp("arrays") / "set.npz", train=TRAIN, test=TEST)


def rows_of(out: Path) -> list[Row]:
    """All rows of a folder, in the order of its files."""
    return [row for path in sorted(out.glob("part-*.parquet")) for row in pq.read_table(path).to_pylist()]


def are_equal(found: list[Row], expected: list[Row]) -> None:
    """The same scenes with the same looks; numbers may differ in their last bits."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert {**one, "probabilities": 0} == {**other, "probabilities": 0}
        if other["probabilities"] is not None:
            np.testing.assert_allclose(one["probabilities"], other["probabilities"], rtol=1e-3, atol=1e-5)


def test_every_scene_of_a_set_has_one_row_which_is_what_an_agent_makes_of_it(
    model: Path, arrays: Path, tmp_path: Path
) -> None:
    found = score("arrays", root=arrays, model=model, out=tmp_path, quiet=True)
    rows = rows_of(tmp_path)
    assert [row["id"] for row in rows] == [f"train/{n}" for n in range(TRAIN)] + [f"test/{n}" for n in range(TEST)]
    assert [row["label"] for row in rows] == [f"class {n % 3}" for n in range(TRAIN + TEST)]
    agent = infogaze.load(model)
    seeds = torch.cat([scene_seeds(0, TRAIN), scene_seeds(0, TEST)])
    episode = agent.run(ImageSensor(scenes_of_noise(TRAIN + TEST), 4), batch=TRAIN + TEST, seed=seeds)
    best = [agent.classes[number] for number in episode.probabilities.argmax(1).tolist()]
    assert [row["prediction"] for row in rows] == best
    looked = torch.stack([look.location for look in episode.history], 1)
    assert [row["locations"] for row in rows] == looked.tolist()
    correct = [row["label"] == row["prediction"] for row in rows]
    assert (found.scenes, found.added, found.problems, found.mean_looks) == (TRAIN + TEST, TRAIN + TEST, 0, 4.0)
    assert found.accuracy == pytest.approx(sum(correct) / len(correct))


def test_one_split_has_the_rows_that_it_has_among_all(model: Path, arrays: Path, tmp_path: Path) -> None:
    score("arrays", root=arrays, model=model, out=tmp_path / "all", quiet=True)
    score("arrays", root=arrays, model=model, out=tmp_path / "test", split="test", quiet=True)
    are_equal(rows_of(tmp_path / "test"), rows_of(tmp_path / "all")[TRAIN:])


@pytest.mark.parametrize(("shards", "part_size", "batch_size"), [(1, 4, 3), (3, 4, 200), (2, 1, 1), (16, 5, 2)])
def test_shards_share_the_scenes_without_overlap_whatever_the_batch(
    shards: int, part_size: int, batch_size: int, model: Path, arrays: Path, tmp_path: Path
) -> None:
    score("arrays", root=arrays, model=model, out=tmp_path / "whole", quiet=True)
    counts = []
    for number in reversed(range(1, shards + 1)):
        found = score(
            "arrays", root=arrays, model=model, out=tmp_path / "shared", shard=f"{number}/{shards}",
            part_size=part_size, batch_size=batch_size, quiet=True,
        )  # fmt: skip
        counts.append(found.added)
    assert sum(counts) == TRAIN + TEST
    are_equal(rows_of(tmp_path / "shared"), rows_of(tmp_path / "whole"))
    again = score("arrays", root=arrays, model=model, out=tmp_path / "shared", part_size=part_size, quiet=True)
    assert (again.scenes, again.added) == (TRAIN + TEST, 0), "however they were shared, nothing is left to do"


@pytest.mark.parametrize("scenes", [0, 1, 7, 100])
def test_the_parts_of_all_shards_are_each_scene_once(scenes: int) -> None:
    for shards in (1, 2, 5):
        parts = [part for shard in range(1, shards + 1) for part in parts_of(scenes, 3, shard=shard, shards=shards)]
        assert sorted(n for part in parts for n in range(part.start, part.stop)) == list(range(scenes))
        assert len({part.file for part in parts}) == len(parts)


def test_a_folder_of_pictures_needs_no_labels_and_a_broken_file_stops_nothing(model: Path, tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "pictures", 6)
    (folder / "notes.txt").write_text("no picture")
    (folder / ".hidden.png").write_bytes((folder / "000.png").read_bytes())
    (folder / "below" / "001.png").write_text("broken")
    found = score(folder, model=model, out=tmp_path / "out", quiet=True)
    rows = rows_of(tmp_path / "out")
    assert [row["id"] for row in rows] == [
        "000.png", "002.png", "004.png", "below/001.png", "below/003.png", "below/005.png",
    ]  # fmt: skip
    assert (found.problems, found.accuracy, found.mean_looks) == (1, None, 4.0)
    broken = rows[3]
    assert broken["problem"] == "is no image that Pillow can read"
    assert (broken["prediction"], broken["probabilities"], broken["locations"]) == (None, None, [])
    assert {row["problem"] for row in rows[:3] + rows[4:]} == {None}
    one = score(folder / "below", model=model, out=tmp_path / "one", quiet=True)
    assert one.scenes == 3


def begun(model: Path, arrays: Path, out: Path) -> subprocess.Popen[bytes]:
    """The command in a process of its own, one scene a part."""
    options = ["--root", str(arrays), "--model", str(model), "--out", str(out), "--part-size", "1"]
    return subprocess.Popen(
        [sys.executable, "-m", "infogaze.cli.main", "score", "arrays", *options], stdout=subprocess.DEVNULL
    )


@pytest.mark.slow
def test_killed_at_any_moment_and_begun_again_it_does_what_is_missing_and_the_rows_are_the_same(
    model: Path, tmp_path: Path
) -> None:
    arrays = write_arrays(tmp_path / "set.npz", train=100, test=20)
    score("arrays", root=arrays, model=model, out=tmp_path / "straight", quiet=True)
    out = tmp_path / "out"
    for written in (1, 20):
        process = begun(model, arrays, out)
        while len(list(out.glob("part-*.parquet"))) < written and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "it was still at work"
    there = {path.name: path.stat().st_mtime_ns for path in out.glob("part-*.parquet")}
    assert 20 <= len(there) < 120
    found = score("arrays", root=arrays, model=model, out=out, part_size=1, quiet=True)
    assert (found.scenes, found.added) == (120, 120 - len(there))
    assert {name: (out / name).stat().st_mtime_ns for name in there} == there, "what was there was not touched"
    are_equal(rows_of(out), rows_of(tmp_path / "straight"))


def test_a_folder_of_other_scores_is_refused_in_a_line_that_says_what_differs(
    model: Path, arrays: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    asked = {"root": arrays, "model": model, "out": out, "quiet": True}
    score("arrays", **asked, shard="1/2", part_size=4)  # type: ignore[arg-type]
    before = {path: path.read_bytes() for path in out.iterdir()}
    other = tmp_path / "other"
    agent = grey_agent()
    with torch.no_grad():
        for weights in agent.model.parameters():
            weights.neg_()
    infogaze.save(agent, other)
    more = write_arrays(tmp_path / "more.npz", train=TRAIN, test=TEST + 1)
    for changes, words in (
        ({"seed": 1}, "seed is 0 there and 1 here"),
        ({"budget": 2}, "budget is 4 there and 2 here"),
        ({"stop_at": 0.5}, r"stop_at is None there and 0\.5 here"),
        ({"part_size": 5}, "part_size is 4 there and 5 here"),
        ({"model": other}, "model is [0-9a-f]{16} there and [0-9a-f]{16} here"),
        ({"root": more}, "scenes is 23 there and 24 here"),
        ({"split": "test"}, "scenes is 23 there and 9 here"),
        ({"options": ReadOptions(size=(13, 11))}, "fingerprint is"),
    ):
        with pytest.raises(InfogazeError, match=f"out holds scores of another run: {words}"):
            score("arrays", **{**asked, "part_size": 4, **changes})  # type: ignore[arg-type]
    assert {path: path.read_bytes() for path in out.iterdir()} == before
    copied = tmp_path / "elsewhere.npz"
    copied.write_bytes(arrays.read_bytes())
    moved = tmp_path / "elsewhere" / "set.npz"
    moved.parent.mkdir()
    copied.rename(moved)
    assert score("arrays", **{**asked, "part_size": 4, "root": moved}).scenes == TRAIN + TEST, (  # type: ignore[arg-type]
        "the same file on another machine is the same source"
    )


def test_what_cannot_be_scored_is_said_before_anything_is_written(
    model: Path, arrays: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, empty = tmp_path / "out", tmp_path / "empty"
    empty.mkdir()
    cnn = tmp_path / "cnn"
    infogaze.save(agent_of("cnn", made("cnn")), cnn)
    given = ["--out", str(out), "--model", str(model)]
    for call, words in (
        (["nowhere", *given], "nowhere: no such folder, and no set has that name; there are digits"),
        ([str(empty), *given], "holds no pictures"),
        (["arrays", *given], "arrays needs --root"),
        (["arrays", "--root", str(arrays), *given, "--shard", "0/3"], "shard is '0/3'; K/N with K from 1 to N"),
        (["arrays", "--root", str(arrays), *given, "--shard", "4/3"], "shard is '4/3'"),
        (["arrays", "--root", str(arrays), *given, "--part-size", "0"], "part_size is 0"),
        (["arrays", "--root", str(arrays), *given, "--batch-size", "0"], "batch_size is 0"),
        (
            ["arrays", "--root", str(arrays), *given, "--read.size", "9", "9"],
            "size is (9, 9); the model's scenes are 13x11",
        ),
        (["digits", "--out", str(out), "--model", "cifar10"], "digits has 1 channels, and the model takes 3"),
        ([str(tmp_path), "--split", "test", *given], "a split and ways to read belong to a set"),
        ([str(tmp_path), "--out", str(out), "--model", str(cnn)], "a model by cnn, which sees more than its looks"),
    ):
        assert words in refused(capsys, "score", *call)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    line = refused(capsys, "score", "arrays", "--root", arrays, *given)
    assert line == "infogaze: writing Parquet needs the extra \"score\": pip install 'infogaze[score]'"
    assert not out.exists()


def test_places_may_be_chosen_by_a_distilled_gain_and_rows_say_so(
    model: Path, arrays: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"model": model, "root": arrays, "split": "test", "quiet": True}
    with pytest.raises(InfogazeError, match="no distilled gain"):
        score("arrays", out=tmp_path / "none", gain="distilled", **given)  # type: ignore[arg-type]
    agent = infogaze.load(model)
    agent.distilled = DistilledGain(CONFIG.belief_size, CONFIG.grid.num_locations)
    for number, value in enumerate(agent.distilled.parameters()):
        value.data.normal_(generator=torch.Generator().manual_seed(number))
    infogaze.save(agent, tmp_path / "model")
    given["model"] = tmp_path / "model"
    score("arrays", out=tmp_path / "exact", **given)  # type: ignore[arg-type]
    score("arrays", out=tmp_path / "fast", gain="distilled", **given)  # type: ignore[arg-type]
    where = [[row["locations"] for row in rows_of(tmp_path / name)] for name in ("exact", "fast")]
    assert where[0] != where[1]
    assert [first for first, *_ in where[0]] == [first for first, *_ in where[1]], "first looks are the same"
    with pytest.raises(InfogazeError, match="gain is exact there and distilled here|model is"):
        score("arrays", out=tmp_path / "exact", gain="distilled", **given)  # type: ignore[arg-type]


def test_the_command_says_what_its_shard_holds(
    model: Path, arrays: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["score", "arrays", "--root", str(arrays), "--model", str(model), "--part-size", "5", "--out", str(tmp_path)]
    main([*call, "--shard", "2/3"])
    assert "shard 2/3: 8 scenes, 8 of them now, 4.00 looks a scene, accuracy" in capsys.readouterr().out
    main([*call, "--shard", "2/3"])
    assert "shard 2/3: 8 scenes, 0 of them now" in capsys.readouterr().out
    manifest = json.loads((tmp_path / "score.json").read_text())
    assert manifest["classes"] == ["class 0", "class 1", "class 2"]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
