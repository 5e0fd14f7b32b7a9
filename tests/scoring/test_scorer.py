from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import infogaze
from infogaze import ImageSensor, InfogazeError, Scorer, scene_seeds
from infogaze.scoring.scorer import seeds_of
from tests.support.scoring import grey_agent, saved_model, scenes_of_noise, write_pictures

COUNT = 12


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(saved_model(tmp_path_factory.mktemp("model")))


def batch(count: int = COUNT) -> dict[str, np.ndarray]:
    return {"image": scenes_of_noise(count), "id": np.arange(count)}


def part_of(columns: dict[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values[rows] for name, values in columns.items()}


def is_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(found) == list(expected)
    for name, values in expected.items():
        if np.issubdtype(values.dtype, np.floating):
            np.testing.assert_allclose(found[name], values, rtol=1e-3, atol=1e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_scenes_come_to_what_an_agent_makes_of_them(model: str) -> None:
    agent = infogaze.load(model)
    episode = agent.run(ImageSensor(scenes_of_noise(COUNT), 4), batch=COUNT, seed=scene_seeds(3, COUNT))
    found = Scorer(model=model, seed=3)(batch())
    np.testing.assert_allclose(found["probabilities"], episode.probabilities.numpy(), rtol=1e-5)
    best = episode.probabilities.argmax(1).tolist()
    assert found["prediction"].tolist() == [agent.classes[number] for number in best]
    looked = torch.stack([look.location for look in episode.history], 1)
    np.testing.assert_array_equal(found["locations"], looked.numpy())
    assert found["looks_taken"].tolist() == [4] * COUNT
    assert set(found["ended_by"]) == {"budget"}
    assert np.isnan(found["ood_score"]).all(), "this model cannot tell"
    assert len(set(map(str, found["locations"].tolist()))) > 1, "scenes are looked at in different ways"


@pytest.mark.parametrize("size", [1, 5])
def test_a_row_does_not_depend_on_the_batch_or_the_order(size: int, model: str) -> None:
    whole, scorer = batch(), Scorer(model=model)
    expected = scorer(whole)
    order = np.random.default_rng(0).permutation(COUNT)
    for start in range(0, COUNT, size):
        rows = order[start : start + size]
        is_same(scorer(part_of(whole, rows)), part_of(expected, rows))


def test_another_seed_or_another_id_looks_elsewhere(model: str) -> None:
    found = Scorer(model=model)(batch())["locations"]
    assert not np.array_equal(Scorer(model=model, seed=1)(batch())["locations"], found)
    named = {"image": scenes_of_noise(COUNT), "id": np.array([f"scene {number}" for number in range(COUNT)])}
    assert not np.array_equal(Scorer(model=model)(named)["locations"], found)


def test_whole_numbers_have_the_seeds_of_those_scenes_and_text_has_its_own() -> None:
    torch.testing.assert_close(seeds_of(np.array([7, 2]), 5), scene_seeds(5, 8)[[7, 2]], rtol=0, atol=0)
    text = seeds_of(np.array(["a", "b", "a"]), 5)
    assert text[0] == text[2] != text[1]
    torch.testing.assert_close(text, seeds_of(np.array(["a", "b", "a"], dtype=object), 5), rtol=0, atol=0)
    assert text[0] != seeds_of(np.array(["a"]), 6)[0]
    with pytest.raises(InfogazeError, match=r"ids are float64 such as 0\.5; whole numbers or text"):
        seeds_of(np.array([0.5]), 0)


def test_scenes_stop_by_a_rule_and_their_other_looks_are_left_out(model: str) -> None:
    found = Scorer(model=model, stop_at=0.9)(batch())
    taken = found["looks_taken"]
    assert set(found["ended_by"]) == {"rule", "budget"}
    assert 1 <= taken.min() < taken.max() <= 4
    np.testing.assert_array_equal((found["locations"] >= 0).all(2).sum(1), taken)
    assert (found["probabilities"].max(1)[found["ended_by"] == "rule"] >= 0.9).all()
    assert Scorer(model=model, budget=2)(batch())["locations"].shape == (COUNT, 2, 2)


def test_files_and_arrays_of_any_layout_are_the_same_scenes(model: str, tmp_path: Path) -> None:
    scorer, expected = Scorer(model=model), Scorer(model=model)(batch())
    images = scenes_of_noise(COUNT)
    folder = write_pictures(tmp_path, COUNT)
    paths = sorted(folder.rglob("*.png"), key=lambda path: path.name)
    ragged = np.empty(COUNT, dtype=object)
    ragged[:] = [image[0] for image in images]
    for column in (images.transpose(0, 2, 3, 1), images[:, 0], images / 255, np.array([*map(str, paths)]), ragged):
        is_same(scorer({"image": column, "id": np.arange(COUNT)}), expected)


def test_a_file_that_is_no_picture_is_said_and_the_others_are_as_without_it(model: str, tmp_path: Path) -> None:
    folder, scorer = write_pictures(tmp_path, 4), Scorer(model=model)
    paths = np.array([str(path) for path in sorted(folder.rglob("*.png"))])
    columns = {"image": paths, "id": np.arange(4), "site": np.array(list("abcd"))}
    whole = scorer(columns)
    assert whole["problem"].tolist() == [""] * 4
    Path(paths[1]).write_text("not a picture")
    Path(paths[2]).unlink()
    found = scorer(columns)
    assert found["problem"].tolist() == ["", "is no image that Pillow can read", "is missing", ""]
    assert found["prediction"][[1, 2]].tolist() == ["", ""]
    assert np.isnan(found["probabilities"][[1, 2]]).all()
    assert found["looks_taken"].tolist() == [4, 0, 0, 4]
    assert (found["locations"][[1, 2]] == -1).all()
    assert found["site"].tolist() == list("abcd")
    rows = np.array([0, 3])
    is_same(part_of(found, rows), part_of(whole, rows))
    nothing = scorer({"image": paths[1:3], "id": np.arange(2)})
    assert {name: values.shape[1:] for name, values in nothing.items()} == {
        name: values.shape[1:] for name, values in whole.items() if name != "site"
    }


def test_no_scenes_are_no_rows(model: str) -> None:
    found = Scorer(model=model)(batch(0))
    assert {len(values) for values in found.values()} == {0}


def test_it_is_pickled_without_its_model_and_says_the_same_in_another_process(model: str, tmp_path: Path) -> None:
    scorer = Scorer(model=model, seed=2)
    expected = scorer(batch())
    data = pickle.dumps(scorer)
    assert len(data) < 2000
    (tmp_path / "scorer").write_bytes(data)
    np.save(tmp_path / "images.npy", scenes_of_noise(COUNT))
    program = (
        "import sys, pickle, numpy as np\n"
        "from pathlib import Path\n"
        "home = Path(sys.argv[1])\n"
        "scorer = pickle.loads((home / 'scorer').read_bytes())\n"
        "found = scorer({'image': np.load(home / 'images.npy'), 'id': np.arange(12)})\n"
        "np.save(home / 'found.npy', found['probabilities'])\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    np.testing.assert_allclose(np.load(tmp_path / "found.npy"), expected["probabilities"], rtol=1e-3, atol=1e-5)


def test_copies_of_a_scorer_share_its_model_and_a_new_one_reads_the_folder_again(tmp_path: Path) -> None:
    folder = saved_model(tmp_path)
    scorer = Scorer(model=str(folder))
    copy = pickle.loads(pickle.dumps(scorer))
    assert copy.agent is scorer.agent
    other = grey_agent()
    other.num_looks = 2
    infogaze.save(other, folder)
    assert copy.looks == 4
    assert Scorer(model=str(folder)).looks == 2
    assert replace(scorer).looks == 2


def test_what_a_user_can_mend_is_one_line(model: str) -> None:
    scorer = Scorer(model=model)
    for columns, words in (
        ({"picture": scenes_of_noise(2), "id": np.arange(2)}, "no column 'image'; it has 'picture', 'id'"),
        ({"image": scenes_of_noise(2)}, "no column 'id'"),
        ({**batch(2), "prediction": np.arange(2)}, "a column 'prediction' already"),
        ({"image": np.zeros((2, 13, 11), np.int64), "id": np.arange(2)}, "the array is int64"),
    ):
        with pytest.raises(InfogazeError, match=words):
            scorer(columns)
    for options, words in (
        ({"budget": 0}, "budget is 0"),
        ({"stop_at": 2.0}, "probability is 2.0"),
        ({"seed": 1 << 63}, "seed is"),
    ):
        with pytest.raises(InfogazeError, match=words):
            Scorer(model=model, **options)
    with pytest.raises(InfogazeError, match="no such folder"):
        _ = Scorer(model="nowhere").agent
