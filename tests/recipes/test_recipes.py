from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

import infogaze
from infogaze.data.digits import digits
from infogaze.data.registry import load_set
from infogaze.data.sets import Split
from infogaze.evaluation import store
from infogaze.evaluation.corruptions import CORRUPTIONS
from infogaze.evaluation.exact_pass import Records, exact_pass
from infogaze.evaluation.measurement import Subject
from infogaze.evaluation.rollouts import roll_out
from infogaze.evaluation.store import About
from infogaze.evaluation.travelled import POLICIES, travelled
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
    """One of each digit."""
    test, labels, edge = digits(0).test, range(10), (32 - side) // 2
    chosen = test.images[[int(torch.nonzero(test.labels.eq(digit))[0]) for digit in labels]].permute(0, 2, 3, 1)
    images = chosen[:, edge : edge + side, edge : edge + side].numpy().repeat(channels, -1)
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
        ("shipped.py", [], "NAME DATA [flip-tta]"),
        ("shipped.py", ["digits"], "NAME DATA [flip-tta]"),
        ("flip_tta.py", [], "DATA RUN..."),
        ("flip_tta.py", ["set.npz"], "DATA RUN..."),
        ("second_look.py", ["set.npz", "12", "12"], "DATA ROW COLUMN RUN..."),
        ("corrupt.py", ["digits", "set.npz", "noise"], "NAME DATA KIND SEVERITY..."),
        ("ask.py", ["bright-frame", "set.npz", "10"], "QUESTION DATA SCENES MODEL [OTHER...]"),
        ("travel.py", ["set.npz", "10"], "DATA SCENES MODEL..."),
        ("stopping.py", ["set.npz"], "DATA MODEL..."),
        ("distil.py", ["set.npz", "digits"], "DATA MODEL OUT [SCENES]"),
        ("ship.py", [], "RUN src/infogaze/bundled/NAME"),
        ("draw_sample.py", [], "PNG"),
        ("draw_pictures.py", [], "FOLDER"),
    ],
)
def test_a_recipe_called_with_too_little_says_how_it_is_called(name: str, given: list[str], usage: str) -> None:
    assert refused(sys.executable, ROOT / "recipes" / name, *given) == f"usage: python recipes/{name} {usage}"


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("shipped.py", ["digits", "nosuch.npz"], "nosuch.npz: no such file"),
        ("shipped.py", ["digits", "nosuch.npz", "triplet"], "triplet: not known; the third word may be flip-tta"),
        ("flip_tta.py", ["nosuch.npz", "nowhere"], "nowhere: no such folder"),
        ("second_look.py", ["nosuch.npz", "12", "12", "nowhere"], "nowhere: no such folder"),
        ("corrupt.py", ["digits", "nosuch.npz", "rain", "1"], "rain: not known; it must be one of shift, scale"),
        ("ask.py", ["bright-frame", "nosuch.npz", "10", "digits"], "nosuch.npz: no such file"),
        ("travel.py", ["nosuch.npz", "10", "digits"], "nosuch.npz: no such file"),
        ("stopping.py", ["nosuch.npz", "digits"], "nosuch.npz: no such file"),
        ("distil.py", ["nosuch.npz", "digits", "out"], "nosuch.npz: no such file"),
        ("ship.py", ["nowhere", "out"], "nowhere: no such folder"),
        ("draw_sample.py", ["picture.nosuch"], "unknown file extension: .nosuch"),
        ("draw_pictures.py", ["nowhere"], "[Errno 2] No such file or directory: 'nowhere/airplane.png'"),
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
        (line,) = [line for line in text.splitlines() if "One decision" in line]
        assert told["cifar10", "decision"] in line


def test_every_row_stands_on_a_page_of_its_preset_with_the_length_of_its_training() -> None:
    for row in ROWS:
        pages = [ROOT / "docs" / f"results-{row.parent.name}{more}.md" for more in ("", "-first")]
        found = [text for page in pages if page.is_file() and f"| `{row.stem}`" in (text := page.read_text())]
        assert found, row
        _, longer, length = row.read_text().partition("--length ")
        assert not longer or any(f"`--length {length.split()[0]}`" in page for page in found), row


def percents(shares: Tensor, digits: int = 2) -> list[float]:
    return [round(100 * share, digits) for share in shares.tolist()]


def numbers(line: str) -> list[float]:
    """Those at the end of a line that a recipe printed."""
    return [float(word) for word in line.rpartition(": ")[2].split()]


# Ten scenes: a prediction that another batch rounds otherwise moves a share by ten points at most.
NEARLY = 10.01


@pytest.mark.slow
@pytest.mark.parametrize(("side", "flip"), [(32, []), (28, ["flip-tta"])])
def test_shipped_measures_a_bundled_model_over_a_complete_split(side: int, flip: list[str], tmp_path: Path) -> None:
    path = pictures(tmp_path / "set.npz", 1, side)
    with np.load(path) as arrays:
        scenes = [
            Image.fromarray(image[..., 0]).resize((32, 32), Image.Resampling.LANCZOS) for image in arrays["test_x"]
        ]
    images = torch.from_numpy(np.stack([np.asarray(scene) for scene in scenes])[:, None])
    agent = infogaze.load("digits")
    agent.flip_tta = bool(flip)
    correct = roll_out(agent, Split(images, torch.arange(10))).correct.double().mean(0)
    said = recipe("shipped.py", "digits", path, *flip).strip()
    assert "digits, 10 scenes: " in said
    assert numbers(said) == pytest.approx(percents(correct), abs=NEARLY)


def evaluated_run(run: Path, data: Path) -> tuple[infogaze.Agent, Split, Records]:
    """A run of the bundled digits' model with an evaluation on this set, its agent, its test split and what was recorded."""
    agent = infogaze.load("digits")
    infogaze.save(agent, run)
    test = load_set("arrays", data).test
    looks = exact_pass(subject(agent, test))
    assert agent.origin is not None
    about = About(
        method=agent.origin.method, preset="digits", seed=0, data="set", test="", scenes=10, classes=agent.classes, num_looks=7,
        num_samples=20, grid=agent.model.grid, deployable=True, whole=False, first_looks=0, device="CPU", versions={}, weights="",
        flip_tta=False, recipe="", val_fraction=0.0, fit="",
    )  # fmt: skip
    store.begin(run / "evaluation", about)
    store.write(run / "evaluation", looks)
    return agent, test, looks


def subject(agent: infogaze.Agent, test: Split) -> Subject:
    assert agent.origin is not None
    method = infogaze.METHODS[agent.origin.method]
    return Subject(agent=agent, method=method, test=test, num_scenes=10, seed=0, batch_size=10)


@pytest.mark.slow
def test_flip_tta_classifies_recorded_looks_again_and_refuses_other_images(tmp_path: Path) -> None:
    path, run = pictures(tmp_path / "set.npz", 1), tmp_path / "run"
    agent, test, looks = evaluated_run(run, path)
    rows = [looks.correct]
    agent.flip_tta = True
    rows.append(exact_pass(subject(agent, test)).correct)
    lines = recipe("flip_tta.py", path, run).splitlines()
    for line, word, correct in zip(lines, ("without", "with"), rows, strict=True):
        assert line.startswith(f"{run}, {word} flip TTA, 10 scenes: ")
        assert numbers(line) == pytest.approx(percents(correct.double().mean(0)), abs=NEARLY)
    with np.load(path) as arrays:
        np.savez(tmp_path / "other.npz", **{**arrays, "test_y": arrays["test_y"][::-1]})
    with pytest.raises(subprocess.CalledProcessError) as refusal:
        recipe("flip_tta.py", tmp_path / "other.npz", run)
    assert "was evaluated on other test images" in refusal.value.stderr


def test_second_look_sets_the_recorded_looks_against_one_location(tmp_path: Path) -> None:
    path, run = pictures(tmp_path / "set.npz", 1), tmp_path / "run"
    agent, test, looks = evaluated_run(run, path)
    row, column = looks.locations[0, 1].tolist()
    episode, sensor = agent.episode(10), infogaze.ImageSensor(test.images, 8)
    for where in (looks.locations[:, 0], torch.tensor([[row, column]] * 10)):
        episode.observe(sensor.look(where), at=where)
    there = 100 * float((episode.probabilities.argmax(1) == test.labels).double().mean())
    often = 100 * float((looks.locations[:, 1] == looks.locations[0, 1]).all(1).double().mean())
    own = 100 * float(looks.correct[:, 1].double().mean())
    (line,) = recipe("second_look.py", path, str(row), str(column), run).splitlines()
    found = re.fullmatch(
        rf"{re.escape(str(run))}, 10 scenes: own ([\d.]+), at {row} {column} ([\d.]+), looks there itself in ([\d.]+) %",
        line,
    )
    assert found is not None
    assert [float(number) for number in found.groups()] == pytest.approx([own, there, often], abs=NEARLY)


@pytest.mark.slow
def test_corrupt_measures_a_model_at_severities_of_ones_own(tmp_path: Path) -> None:
    path = pictures(tmp_path / "set.npz", 1)
    agent, test = infogaze.load("digits"), load_set("arrays", path).test
    seeds = infogaze.scene_seeds(0, len(test))
    lines = recipe("corrupt.py", "digits", path, "noise", "0.0", "0.3").splitlines()
    for line, severity in zip(lines, (0.0, 0.3), strict=True):
        noisy = Split(CORRUPTIONS["noise"].apply(test.images, severity, seeds), test.labels)
        correct = roll_out(agent, noisy, seed=seeds).correct.double().mean(0)
        assert line.startswith(f"digits, noise {severity}, 10 scenes: ")
        assert numbers(line) == pytest.approx(percents(correct, 1), abs=NEARLY)


@pytest.mark.slow
def test_travel_tells_the_accuracy_at_some_times_of_each_way_to_choose(tmp_path: Path) -> None:
    path = pictures(tmp_path / "set.npz", 1)
    agent, test = infogaze.load("digits"), load_set("arrays", path).test
    assert agent.origin is not None
    method = infogaze.METHODS[agent.origin.method]
    subject = Subject(agent=agent, method=method, test=test, num_scenes=10, seed=0, batch_size=10)
    found = travelled(subject, lambda done: None)
    correct = 100 * (found.predictions == found.labels[:, None]).double().mean(1)
    head, *lines = recipe("travel.py", path, "10", "digits").splitlines()
    assert head.startswith("digits, 10 scenes, after 1.0 ")
    for line, name, right in zip(lines[:3], POLICIES, correct[:, ::4], strict=True):
        told = line.removeprefix(f"{name}: ").split(" %; ")[0]
        assert [float(value) for value in re.findall(r"([\d.]+) \[", told)] == pytest.approx(right.tolist(), abs=NEARLY)
    for line, name, right in zip(lines[3:], POLICIES[1:], correct[1:, ::4], strict=True):
        assert line.startswith(f"gain a second before {name}: ")
        ahead = (correct[0, ::4] - right).tolist()
        assert [float(value) for value in re.findall(r"([+-][\d.]+) \[", line)] == pytest.approx(ahead, abs=NEARLY)


@pytest.mark.slow
def test_stopping_tells_the_looks_and_the_accuracy_of_each_rule(tmp_path: Path) -> None:
    path = pictures(tmp_path / "set.npz", 1)
    agent, test = infogaze.load("digits"), load_set("arrays", path).test
    by_look = 100 * roll_out(agent, test).correct.double().mean(0)
    head, *lines = recipe("stopping.py", path, "digits").splitlines()
    assert head.startswith("digits, 10 scenes: ")
    assert numbers(head) == pytest.approx(by_look.tolist(), abs=NEARLY)
    assert [line.split(",")[0] for line in lines] == ["confidence", "confidence", "entropy", "entropy", "gain", "gain"]
    for line in lines:
        assert ": 7.00 (0.00) looks" in line, "ten scenes promise nothing, so nothing stops"
        assert "broken 0.0 %, on the other half 0.0 %" in line


@pytest.mark.slow
def test_distil_gives_a_model_a_gain_and_tells_what_it_costs_by_look(tmp_path: Path) -> None:
    path = pictures(tmp_path / "set.npz", 1)
    head, _, *lines = recipe("distil.py", path, "digits", tmp_path / "model", "20").splitlines()[-9:]
    assert head == "digits, 20 training scenes, 10 test scenes"
    test = load_set("arrays", path).test
    exact, distilled = (
        roll_out(agent, test).correct.double().mean(0)
        for agent in (infogaze.load("digits"), infogaze.load(tmp_path / "model", gain="distilled"))
    )
    for look, line in enumerate(lines):
        number, lost, *told = re.split(r": |, | and ", line)
        assert int(number) == look
        assert [float(word) for word in told[:2]] == pytest.approx(
            [100 * float(exact[look]), 100 * float(distilled[look])], abs=NEARLY
        )
        assert lost == "-" if look == 0 else float(lost.split()[0]) >= 0.0
    assert len(lines) == 7


@pytest.mark.slow
def test_ask_tells_how_looks_for_a_question_and_others_answer_it(tmp_path: Path) -> None:
    path = pictures(tmp_path / "set.npz", 1)
    agent, test = infogaze.load("digits"), load_set("arrays", path).test
    first, *lines = recipe("ask.py", "3,8", path, "10", "digits", "digits").splitlines()
    assert first == "3,8: 20.0 % of 10 scenes"
    question = agent.ask({"no": None, "yes": ["3", "8"]})
    answers = {
        "digits, looks for the question": roll_out(question, test).probabilities,
        "digits, looks for the classes": _either(roll_out(agent, test).probabilities),
        "digits, looks for nothing, at random": _either(
            roll_out(agent.with_policy(infogaze.RandomPolicy()), test).probabilities
        ),
        "digits, as it looks": _either(roll_out(agent, test).probabilities),
    }
    truth = torch.isin(test.labels, torch.tensor([3, 8])).long()
    for line, (name, believed) in zip(lines, answers.items(), strict=True):
        accuracy, _, looks = line.removeprefix(f"{name}: ").split("; ")
        right = 100 * (believed.argmax(-1) == truth[:, None]).double().mean(0)
        found = [float(word) for word in accuracy.removesuffix(" %").split()]
        assert found == pytest.approx([round(value, 1) for value in right.tolist()], abs=NEARLY), name
        assert 1.0 <= float(looks.removesuffix(" looks")) <= 8.0
    said = refused(sys.executable, ROOT / "recipes" / "ask.py", "11", path, "10", "digits")
    assert "11: neither bright-frame, blue-above nor some of 0, 1, 2" in said


def _either(probabilities: Tensor) -> Tensor:
    """Of neither 3 nor 8, and of either."""
    yes = probabilities[..., [3, 8]].sum(-1)
    return torch.stack([1 - yes, yes], -1)


@pytest.mark.slow
def test_ask_learns_a_head_for_a_question_of_pixels(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    rng = np.random.default_rng(0)
    frame = rng.integers(0, 2, 60)
    images = np.zeros((60, 32, 32, 1), np.uint8) + (60 + 120 * frame).astype(np.uint8)[:, None, None, None]
    images[:, 8:24, 8:24] = rng.integers(0, 255, (60, 16, 16, 1))
    labels = np.arange(60) % 10
    np.savez(path, train_x=images, train_y=labels, test_x=images[:20], test_y=labels[:20])
    _, *lines = recipe("ask.py", "bright-frame", path, "20", "digits").splitlines()
    for line in lines:
        assert float(line.partition(": ")[2].split()[6]) >= 80.0, "after seven looks most frames are known"


def test_ship_keeps_a_model_in_half_precision_and_small_files(tmp_path: Path) -> None:
    bundled = ROOT / "src" / "infogaze" / "bundled" / "cifar10"
    recipe("ship.py", bundled, tmp_path / "again")
    files = sorted((tmp_path / "again").glob("model*.safetensors"))
    assert [path.name for path in files] == sorted(path.name for path in bundled.glob("model*.safetensors"))
    assert all(path.stat().st_size < 5 << 20 for path in files)
    kinds = {value.dtype for path in files for value in load_file(path).values()}
    assert {kind for kind in kinds if kind.is_floating_point} == {torch.float16}
    before, after = infogaze.load(bundled), infogaze.load(tmp_path / "again")
    assert (after.origin, after.classes, after.num_looks, after.fit) == (
        before.origin, before.classes, before.num_looks, before.fit,
    )  # fmt: skip
    for name, value in before.model.state_dict().items():
        assert torch.equal(after.model.state_dict()[name], value), name


def test_the_sample_picture_is_the_one_that_is_drawn(tmp_path: Path) -> None:
    recipe("draw_sample.py", tmp_path / "drawn.png")
    drawn, bundled = (
        np.asarray(Image.open(path)).astype(int) for path in (tmp_path / "drawn.png", infogaze.sample_picture())
    )
    assert np.abs(drawn - bundled).mean() < 0.5


def test_the_pictures_of_the_page_are_those_that_are_drawn(tmp_path: Path) -> None:
    recipe("draw_pictures.py", tmp_path)
    bundled = ROOT / "src" / "infogaze" / "page" / "drawn"
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in bundled.iterdir()}
    for path in tmp_path.iterdir():
        drawn, kept = (np.asarray(Image.open(file)).astype(int) for file in (path, bundled / path.name))
        assert np.abs(drawn - kept).mean() < 0.5, path.name
