"""Models in the layout of the Hub, by its own library: what is saved is loaded, cards are its cards, and no network is one line."""

from __future__ import annotations

import json
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub import ModelCard, ModelHubMixin

import infogaze
from infogaze import Agent, InfogazeError, ModelFolderError
from infogaze.adapters.hub import HubAgent, load, model_card, run_card
from infogaze.cli.main import main
from infogaze.evaluation.estimates import Estimate, accuracy
from infogaze.evaluation.exact_pass import Records
from infogaze.evaluation.store import read
from tests.support.own import QUICK, write_pictures
from tests.support.tiny import CONFIG, scenes, tiny_agent

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def same(one: Agent, other: Agent) -> bool:
    """Whether they look and answer alike."""
    images = scenes(3)
    ended = [agent.run(infogaze.ImageSensor(images, CONFIG.glimpse_size), batch=3, seed=1) for agent in (one, other)]
    return torch.equal(*(episode.probabilities for episode in ended))


def measured() -> Estimate:
    return accuracy(torch.arange(40)[:, None] < torch.tensor([20, 30]))


@pytest.fixture
def agent() -> Agent:
    return tiny_agent()


def test_what_the_mixin_saves_is_what_it_loads_and_a_model_folder(agent: Agent, tmp_path: Path) -> None:
    saved = HubAgent(agent)
    assert isinstance(saved, ModelHubMixin)
    saved.save_pretrained(tmp_path / "model")
    files = {path.name for path in (tmp_path / "model").iterdir()}
    assert files == {"model.json", "model.safetensors", "README.md", "config.json"}
    loaded = HubAgent.from_pretrained(tmp_path / "model")
    for other in (loaded.agent, load(tmp_path / "model"), infogaze.load(tmp_path / "model")):
        assert same(agent, other)
    assert loaded.card == saved.card


def test_the_digests_of_the_folder_are_checked(agent: Agent, tmp_path: Path) -> None:
    HubAgent(agent).save_pretrained(tmp_path / "model")
    with (tmp_path / "model" / "model.safetensors").open("ab") as weights:
        weights.write(b"more")
    with pytest.raises(ModelFolderError, match=r"model\.safetensors: damaged"):
        load(tmp_path / "model")


def test_a_card_is_one_of_the_hub_with_what_is_known(agent: Agent, tmp_path: Path) -> None:
    card = model_card(agent, name="tiny", license="mit", datasets=["noise", "more"], measured=measured())
    HubAgent(agent, card).save_pretrained(tmp_path / "model")
    read_back = ModelCard.load(tmp_path / "model" / "README.md")
    data: Any = read_back.data
    assert (data.license, data.library_name, data.pipeline_tag) == ("mit", "infogaze", "image-classification")
    assert data.datasets == ["noise", "more"]
    assert data.metrics == ["accuracy"]
    assert {"active-vision", "hard-attention", "model_hub_mixin"} == set(data.tags)
    assert [(result.metric_name, result.metric_value) for result in data.eval_results] == [
        ("accuracy after 1 look", 0.5),
        ("accuracy after 2 looks", 0.75),
    ]
    assert {(result.dataset_type, result.dataset_split, result.task_type) for result in data.eval_results} == {
        ("noise", "test", "image-classification")
    }
    assert data.model_name == "tiny"
    assert "| 2 | 75.0 [" in read_back.text
    assert "40 test images" in read_back.text
    assert str(HubAgent.from_pretrained(tmp_path / "model").generate_model_card()) == str(read_back)


def test_what_is_not_given_is_not_claimed(agent: Agent) -> None:
    text = str(model_card(agent))
    assert not [claim for claim in ("license", "datasets", "metrics", "model-index") if claim in text]
    with pytest.raises(InfogazeError, match="datasets is empty"):
        model_card(agent, measured=measured())


def test_the_snippet_of_a_card_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    HubAgent(infogaze.load("digits")).save_pretrained(tmp_path / "owner" / "name")
    text = ModelCard.load(tmp_path / "owner" / "name" / "README.md").text
    snippet = text.split("```python\n")[1].split("```")[0]
    shutil.copy(infogaze.sample_picture(), tmp_path / "picture.png")
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet, "README.md", "exec"), {})


def test_a_page_of_one_s_own_stays(agent: Agent, tmp_path: Path) -> None:
    page = "---\nlicense: cc0-1.0\n---\n\n# Mine\n"
    HubAgent(agent, page).save_pretrained(tmp_path / "one")
    assert (tmp_path / "one" / "README.md").read_text() == page
    HubAgent.from_pretrained(tmp_path / "one").save_pretrained(tmp_path / "two")
    assert (tmp_path / "two" / "README.md").read_text() == page
    HubAgent(agent).save_pretrained(tmp_path / "two")
    assert (tmp_path / "two" / "README.md").read_text() == page


@pytest.mark.slow
def test_the_card_of_a_run_has_its_set_and_what_was_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFOGAZE_CACHE", str(tmp_path / "cache"))
    run, root = tmp_path / "run", write_pictures(tmp_path / "pictures")
    main(["train", "own", "--root", str(root), "--read.size", "16", "16", "--out", str(run), *QUICK])
    assert "metrics" not in str(run_card(run)), "nothing was recorded yet"
    main(["evaluate", str(run), "--measure", "records", "--device", "cpu"])
    data: Any = run_card(run, license="mit").data
    correct = read(run / "evaluation", Records).correct
    assert (data.model_name, data.license, data.datasets) == ("run", "mit", ["pictures"])
    values = [result.metric_value for result in data.eval_results]
    assert values == pytest.approx(correct.double().mean(0).tolist(), abs=1e-4)
    configuration = (run / "config.json").read_bytes()
    with pytest.raises(InfogazeError, match=r"config\.json: of something else"):
        HubAgent(load(run), run_card(run)).save_pretrained(run)
    assert (run / "config.json").read_bytes() == configuration


def cached(agent: Agent, root: Path) -> Path:
    """The Hub's cache as its library leaves it: links to files by their digests."""
    HubAgent(agent).save_pretrained(root / "made")
    repository = root / "cache" / "models--owner--name"
    (repository / "blobs").mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    for number, path in enumerate(sorted((root / "made").iterdir())):
        shutil.copy(path, repository / "blobs" / str(number))
        (snapshot / path.name).symlink_to(repository / "blobs" / str(number))
    return root / "cache"


def test_a_repository_that_was_fetched_before_needs_no_network(agent: Agent, tmp_path: Path) -> None:
    found = load("owner/name", cache_dir=cached(agent, tmp_path), local_files_only=True)
    assert same(agent, found)


def test_without_a_network_it_is_said_in_one_line(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InfogazeError, match=r"^owner/name: no such folder, and not to be had from the Hub: ") as error:
        load("owner/name", cache_dir=tmp_path, local_files_only=True)
    assert "\n" not in str(error.value)
    assert error.value.__suppress_context__
    # A port that nothing listens at, and no waiting between attempts.
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(InfogazeError, match=r"^owner/name: cannot be pushed to the Hub: ") as error:
        HubAgent(agent).push_to_hub("owner/name", token="none")
    assert "\n" not in str(error.value)


def test_names_and_folders_that_are_none_are_refused(agent: Agent, tmp_path: Path) -> None:
    with pytest.raises(InfogazeError, match="no/such/folder: no such folder"):
        load("no/such/folder")
    (tmp_path / "file").write_text("")
    with pytest.raises(InfogazeError, match="file: cannot be saved"):
        HubAgent(agent).save_pretrained(tmp_path / "file")
    HubAgent(agent).save_pretrained(tmp_path / "model")
    for broken in ("[1, 2]", "{"):
        (tmp_path / "model" / "config.json").write_text(broken)
        with pytest.raises(InfogazeError, match=r"config\.json: not"):
            load(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text(json.dumps({"library_name": "another"}))
    with pytest.raises(InfogazeError, match="of something else"):
        HubAgent(agent).save_pretrained(tmp_path / "model")


def test_without_the_extra_one_line_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.delitem(sys.modules, "infogaze.adapters.hub")
    with pytest.raises(InfogazeError, match=r"needs the extra 'hub': pip install 'infogaze\[hub\]'"):
        import_module("infogaze.adapters.hub")
