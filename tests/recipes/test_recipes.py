from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import infogaze
from infogaze.data.registry import load_set
from infogaze.data.sets import Split
from infogaze.evaluation import records
from infogaze.evaluation.corruptions import DISTURBANCES
from infogaze.evaluation.exact_pass import exact_pass
from infogaze.evaluation.records import About, Records
from infogaze.evaluation.rollouts import roll_out
from tests.support.paths import ROOT

ROWS = sorted((ROOT / "recipes").glob("*/*.sh"))


def recipe(name: str, *arguments: str | Path) -> str:
    """What a recipe in Python prints."""
    command = [sys.executable, ROOT / "recipes" / name, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def refused(*command: str | Path) -> str:
    """The one line of a refusal, with exit code 2."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removesuffix("\n")


def pictures(path: Path, channels: int, side: int = 32) -> Path:
    draw = np.random.default_rng(0)
    images, labels = draw.integers(0, 256, (10, side, side, channels)).astype(np.uint8), np.arange(10)
    classes = np.array([str(number) for number in range(10)])
    np.savez(path, train_x=images, train_y=labels, test_x=images, test_y=labels, classes=classes)
    return path


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.parent.name}/{row.stem}" for row in ROWS])
def test_the_row_of_a_result_is_a_command_that_infogaze_takes(row: Path, tmp_path: Path) -> None:
    pretender = tmp_path / "infogaze"  # asks what would be run instead of running it
    pretender.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m infogaze.cli.main "$@" --print-stage methods\n')
    pretender.chmod(0o755)
    data = pictures(tmp_path / "set.npz", 3)
    done = subprocess.run(
        [row, data, tmp_path / "sweep"],
        capture_output=True, text=True, check=False, env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"--method {row.stem} " in done.stdout
    assert f"train {row.parent.name} " in done.stdout
    assert ("--read.size 32 32" in done.stdout) == (row.parent.name == "svhn")


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.parent.name}/{row.stem}" for row in ROWS])
def test_a_row_without_its_data_and_its_folder_says_how_it_is_called(row: Path) -> None:
    for given in ([], ["set.npz"]):
        data = "SVHN28.npz" if row.parent.name == "svhn" else "CIFAR10.npz"
        assert refused(row, *given) == f"usage: {row} {data} SWEEP"


@pytest.mark.parametrize(
    ("name", "given", "usage"),
    [
        ("shipped.py", [], "NAME DATA [twin]"),
        ("shipped.py", ["digits"], "NAME DATA [twin]"),
        ("twin.py", [], "DATA RUN..."),
        ("twin.py", ["set.npz"], "DATA RUN..."),
        ("second_look.py", ["set.npz", "12", "12"], "DATA ROW COLUMN RUN..."),
        ("disturb.py", ["digits", "set.npz", "noise"], "NAME DATA KIND STRENGTH..."),
        ("ship.py", [], "RUN src/infogaze/bundled/NAME"),
        ("draw_sample.py", [], "PNG"),
    ],
)
def test_a_recipe_called_with_too_little_says_how_it_is_called(name: str, given: list[str], usage: str) -> None:
    assert refused(sys.executable, ROOT / "recipes" / name, *given) == f"usage: python recipes/{name} {usage}"


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("shipped.py", ["digits", "nosuch.npz"], "nosuch.npz: no such file"),
        ("shipped.py", ["digits", "nosuch.npz", "triplet"], "triplet: not known; the third word may be twin"),
        ("twin.py", ["nosuch.npz", "nowhere"], "nowhere: no such folder"),
        ("second_look.py", ["nosuch.npz", "12", "12", "nowhere"], "nowhere: no such folder"),
        ("disturb.py", ["digits", "nosuch.npz", "rain", "1"], "rain: not known; it must be one of shift, scale"),
        ("ship.py", ["nowhere", "out"], "nowhere: no such folder"),
        ("draw_sample.py", ["picture.nosuch"], "unknown file extension: .nosuch"),
    ],
)
def test_a_recipe_tells_an_ordinary_mistake_in_one_line(name: str, given: list[str], said: str) -> None:
    path = ROOT / "recipes" / name
    assert refused(sys.executable, path, *given).startswith(f"{path}: {said}")


def told_shares(text: str) -> dict[tuple[str, str], str]:
    """The share of the peak in each row of the tables of docs/performance.md, by preset and row as in benchmarks/."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith(("| `", "| one scene"))]
    shares = {}
    for name, *cells in rows:
        preset, _, row = name.replace("one scene, one decision", "`cifar10`, decision").partition(", ")
        (shares[preset.strip("`"), row.partition(", ")[0]],) = [cell for cell in cells if cell.endswith(" %")]
    return shares


@pytest.mark.parametrize(("machine", "title"), [("h200", "One NVIDIA H200"), ("cpu", "Two CPU cores")])
def test_the_shares_of_the_peak_that_are_told_are_those_measured(machine: str, title: str) -> None:
    text = (ROOT / "docs" / "performance.md").read_text()
    (section,) = [part for part in text.split("\n## ") if part.startswith(title)]
    told = told_shares(section)
    measured = {}
    for path in (ROOT / "benchmarks").glob(f"{machine}-*.json"):
        record = json.loads(path.read_text())
        for row in record["rows"]:
            measured[record["preset"], row["row"]] = 100 * row["share_of_peak"]
    assert measured.keys() == told.keys()
    for row, share in told.items():
        digits = len(share.removesuffix(" %").partition(".")[2])
        assert share == f"{measured[row]:.{digits}f} %", row
    if machine == "h200":
        assert (
            f"One decision: latency of small kernels that wait for each other; arithmetic is {told['cifar10', 'decision']}"
            in text
        )


def test_every_row_stands_in_the_section_of_its_preset_with_the_length_of_its_training() -> None:
    sections = (ROOT / "RESULTS.md").read_text().split("\n## ")
    for row in ROWS:
        (section,) = [part for part in sections if f"preset `{row.parent.name}`:" in part.partition("\n")[0]]
        assert f"| `{row.stem}`" in section, row
        _, longer, length = row.read_text().partition("--length ")
        assert not longer or f"`--length {length.split()[0]}`" in section, row


@pytest.mark.parametrize(("side", "twin"), [(32, []), (28, ["twin"])])
def test_shipped_measures_a_bundled_model_over_a_complete_split(side: int, twin: list[str], tmp_path: Path) -> None:
    path = pictures(tmp_path / "set.npz", 1, side)
    with np.load(path) as arrays:
        scenes = [
            Image.fromarray(image[..., 0]).resize((32, 32), Image.Resampling.LANCZOS) for image in arrays["test_x"]
        ]
    images = torch.from_numpy(np.stack([np.asarray(scene) for scene in scenes])[:, None])
    agent = infogaze.load("digits")
    agent.twin = bool(twin)
    right = roll_out(agent, Split(images, torch.arange(10)), agent.policy).right.double().mean(0)
    row = " ".join(f"{100 * share:.2f}" for share in right.tolist())
    assert recipe("shipped.py", "digits", path, *twin).strip().endswith(f"digits, 10 scenes: {row}")


def evaluated_run(run: Path, data: Path) -> tuple[infogaze.Agent, Split, Records]:
    """A run of the bundled digits' model with an evaluation on this set, its agent, its test split and what was recorded."""
    agent = infogaze.load("digits")
    infogaze.save(agent, run)
    test = load_set("arrays", data).test
    looks = exact_pass(agent, test, 0, 10)
    about = About(
        "infogaze", "digits", 0, "set", "", 10, agent.classes, 7, 20, agent.model.grid, True, False, 0, "CPU", {}
    )  # fmt: skip
    records.begin(run / "evaluation", about)
    records.write(run / "evaluation", looks)
    return agent, test, looks


def test_twin_names_recorded_looks_again_and_refuses_other_images(tmp_path: Path) -> None:
    path, run = pictures(tmp_path / "set.npz", 1), tmp_path / "run"
    agent, test, looks = evaluated_run(run, path)
    rows = [looks.right]
    agent.twin = True
    rows.append(exact_pass(agent, test, 0, 10).right)
    said = [" ".join(f"{100 * share:.2f}" for share in right.double().mean(0).tolist()) for right in rows]
    assert recipe("twin.py", path, run).splitlines() == [
        f"{run}, one belief, 10 scenes: {said[0]}", f"{run}, twins, 10 scenes: {said[1]}",
    ]  # fmt: skip
    with np.load(path) as arrays:
        np.savez(tmp_path / "other.npz", **{**arrays, "test_y": arrays["test_y"][::-1]})
    with pytest.raises(subprocess.CalledProcessError) as refusal:
        recipe("twin.py", tmp_path / "other.npz", run)
    assert "was evaluated on other test images" in refusal.value.stderr


def test_second_look_sets_the_recorded_looks_against_one_place(tmp_path: Path) -> None:
    path, run = pictures(tmp_path / "set.npz", 1), tmp_path / "run"
    agent, test, looks = evaluated_run(run, path)
    row, column = looks.locations[0, 1].tolist()
    episode, sensor = agent.episode(10), infogaze.ImageSensor(test.images, 8)
    for where in (looks.locations[:, 0], torch.tensor([[row, column]] * 10)):
        episode.observe(sensor.look(where), at=where)
    there = 100 * (episode.probabilities.argmax(1) == test.labels).double().mean()
    often = 100 * (looks.locations[:, 1] == looks.locations[0, 1]).all(1).double().mean()
    own = 100 * looks.right[:, 1].double().mean()
    assert recipe("second_look.py", path, str(row), str(column), run).splitlines() == [
        f"{run}, 10 scenes: own {own:.2f}, at {row} {column} {there:.2f}, looks there itself in {often:.1f} %"
    ]


def test_disturb_measures_a_model_at_strengths_of_ones_own(tmp_path: Path) -> None:
    path = pictures(tmp_path / "set.npz", 1)
    agent, test = infogaze.load("digits"), load_set("arrays", path).test
    seeds, said = infogaze.scene_seeds(0, len(test)), []
    for strength in (0.0, 0.3):
        noisy = Split(DISTURBANCES["noise"].apply(test.images, strength, seeds), test.labels)
        right = roll_out(agent, noisy, agent.policy, seed=seeds).right.double().mean(0).tolist()
        said.append(f"digits, noise {strength}, 10 scenes: {' '.join(f'{100 * share:.1f}' for share in right)}")
    assert recipe("disturb.py", "digits", path, "noise", "0.0", "0.3").splitlines() == said


def test_ship_keeps_a_model_in_half_precision_and_small_files(tmp_path: Path) -> None:
    recipe("ship.py", ROOT / "src" / "infogaze" / "bundled" / "cifar10", tmp_path / "again")
    for path in (ROOT / "src" / "infogaze" / "bundled" / "cifar10").iterdir():
        if path.name != "MODEL_CARD.md":
            assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes(), path.name


def test_the_sample_picture_is_the_one_that_is_drawn(tmp_path: Path) -> None:
    recipe("draw_sample.py", tmp_path / "drawn.png")
    drawn, bundled = (
        np.asarray(Image.open(path)).astype(int) for path in (tmp_path / "drawn.png", infogaze.sample_picture())
    )
    assert np.abs(drawn - bundled).mean() < 0.5
