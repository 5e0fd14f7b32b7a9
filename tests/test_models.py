from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import infogaze
from infogaze import Agent, ImageSensor, Model, ModelFolderError
from infogaze.errors import InfogazeError
from infogaze.files import write_whole
from infogaze.models import bundled
from tests.support.tiny import CONFIG, WITH_HINDSIGHT, tiny_agent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    infogaze.save(tiny_agent(), tmp_path / "model")
    return tmp_path / "model"


def test_a_saved_agent_comes_back_the_same(folder: Path) -> None:
    agent, again = tiny_agent(), infogaze.load(folder)
    assert (again.classes, again.looks, again.samples, again.config) == (
        agent.classes,
        agent.looks,
        agent.samples,
        agent.config,
    )
    images = torch.randint(0, 256, (3, CONFIG.channels, CONFIG.height, CONFIG.width)).to(torch.uint8)
    one, other = (a.run(ImageSensor(images, CONFIG.glimpse), batch=3) for a in (agent, again))
    assert torch.equal(one.probabilities, other.probabilities)
    assert torch.equal(one.gain, other.gain)


def test_whether_it_has_a_twin_is_saved_and_a_folder_from_before_has_none(tmp_path: Path) -> None:
    agent = tiny_agent()
    agent.twin = True
    infogaze.save(agent, tmp_path)
    assert infogaze.load(tmp_path).twin
    description = json.loads((tmp_path / "model.json").read_text())
    del description["twin"]
    (tmp_path / "model.json").write_text(json.dumps(description))
    assert not infogaze.load(tmp_path).twin


def test_masked_weights_are_not_stored(folder: Path) -> None:
    stored = load_file(folder / "model.safetensors")
    weight = stored["posterior.layers.0.spline.between.weight"]
    assert weight.shape == (CONFIG.latent_size * (CONFIG.latent_size + 1) // 2,)


def test_half_precision_halves_the_file_and_loads_as_float32(tmp_path: Path) -> None:
    infogaze.save(tiny_agent(), tmp_path / "full")
    infogaze.save(tiny_agent(), tmp_path / "half", torch.float16)
    sizes = [sum(t.nbytes for t in load_file(tmp_path / n / "model.safetensors").values()) for n in ("full", "half")]
    assert sizes[1] < 0.51 * sizes[0]
    assert infogaze.load(tmp_path / "half").model.log_variance.dtype == torch.float32


def rewrite(folder: Path, **changes: object) -> None:
    path = folder / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def reweigh(folder: Path, change: dict[str, torch.Tensor]) -> None:
    """Other tensors, with a digest that fits them."""
    import hashlib

    path = folder / "model.safetensors"
    save_file({**load_file(path), **change}, path)
    rewrite(folder, weights={"model.safetensors": hashlib.sha256(path.read_bytes()).hexdigest()})


def test_a_folder_of_another_version_is_refused(folder: Path) -> None:
    rewrite(folder, format=99)
    with pytest.raises(ModelFolderError, match=r"model\.json: format 99, and this version of infogaze reads format 1"):
        infogaze.load(folder)


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ModelFolderError, match=f"{name}: missing"):
        infogaze.load(folder)


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_a_truncated_file_is_named(folder: Path, name: str, share: float) -> None:
    path = folder / name
    data = path.read_bytes()
    path.write_bytes(data[: min(int(share * len(data)), len(data) - 3)])
    with pytest.raises(ModelFolderError, match=name):
        infogaze.load(folder)


def test_one_flipped_bit_is_noticed(folder: Path) -> None:
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    with pytest.raises(ModelFolderError, match="damaged or truncated"):
        infogaze.load(folder)


def test_wrong_shapes_nan_and_foreign_weights_are_refused(folder: Path) -> None:
    name = "backbone.classifier.linear.bias"
    reweigh(folder, {name: torch.zeros(7)})
    with pytest.raises(ModelFolderError, match=r"linear\.bias has shape \(7,\), the model needs \(3,\)"):
        infogaze.load(folder)
    reweigh(folder, {name: torch.tensor([0.0, float("nan"), 0.0])})
    with pytest.raises(ModelFolderError, match=r"linear\.bias holds NaN or infinity"):
        infogaze.load(folder)
    reweigh(folder, {name: torch.zeros(3), "another": torch.zeros(1)})
    with pytest.raises(ModelFolderError, match="another is on one side only"):
        infogaze.load(folder)


@pytest.mark.parametrize("content", ["{}", "[]", "null", '{"format": 1}', '{"format": 1, "model": {"height": "tall"}}'])
def test_a_description_of_something_else_is_refused(folder: Path, content: str) -> None:
    (folder / "model.json").write_text(content)
    with pytest.raises(ModelFolderError, match=r"model\.json: not a"):
        infogaze.load(folder)


def test_a_folder_of_an_unknown_method_is_refused_and_one_from_before_there_were_others_is_ours(folder: Path) -> None:
    description = json.loads((folder / "model.json").read_text())
    assert description.pop("method") == "infogaze"
    (folder / "model.json").write_text(json.dumps(description))
    assert infogaze.load(folder).method == "infogaze"
    rewrite(folder, method="guesswork")
    with pytest.raises(
        ModelFolderError, match="no method is called 'guesswork'; there are infogaze, no-hindsight, gaussian"
    ):
        infogaze.load(folder)
    rewrite(folder, method="ram")
    with pytest.raises(ModelFolderError, match="the weights do not belong to this model"):
        infogaze.load(folder)


def test_every_error_is_one_line(folder: Path) -> None:
    (folder / "model.json").write_text('{"format": 1,\n "mod')
    with pytest.raises(ModelFolderError) as caught:
        infogaze.load(folder)
    assert "\n" not in str(caught.value)


def test_an_unknown_name_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match=r"no such folder.*digits"):
        infogaze.load(tmp_path / "nothing")


def test_an_agent_around_a_model_of_ones_own_says_why_it_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no config"):
        infogaze.save(Agent(tiny_agent().model, ["a", "b", "c"]), tmp_path)


def test_class_names_must_match_the_model() -> None:
    with pytest.raises(ValueError, match="2 class names for a model of 3 classes"):
        Agent(tiny_agent().model, ["a", "b"], config=CONFIG)


def test_bundled_models_load_and_know_their_classes() -> None:
    assert "digits" in bundled()
    for name in bundled():
        agent = infogaze.load(name)
        assert len(agent.classes) > 1


def test_bundled_models_are_small_and_those_of_real_images_have_a_card() -> None:
    home = Path(infogaze.__file__).parent / "bundled"
    assert sum(file.stat().st_size for file in home.rglob("*") if file.is_file()) <= 40_000_000
    for name in set(bundled()) - {"digits"}:
        card = (home / name / "MODEL_CARD.md").read_text()
        assert card.startswith(f'# {name}\n\n`infogaze.load("{name}")`')
        parts = ("Networks", "Data", "Procedure", "Numbers", "For", "Not for")
        assert [card.count(f"\n**{part}.** ") for part in parts] == [1] * len(parts), name
        stored = {value.dtype for file in home.glob(f"{name}/*.safetensors") for value in load_file(file).values()}
        assert {dtype for dtype in stored if dtype.is_floating_point} == {torch.float16}, name


def test_a_model_with_hindsight_comes_back_with_its_gain(tmp_path: Path) -> None:
    agent = tiny_agent(WITH_HINDSIGHT)
    infogaze.save(agent, tmp_path)
    again = infogaze.load(tmp_path)
    assert again.config == WITH_HINDSIGHT
    belief, noise = agent.model.backbone.start(2), torch.randn(3, 2, CONFIG.latent_size)
    assert isinstance(agent.model, Model)
    assert isinstance(again.model, Model)
    gain = agent.model.gain(belief, noise)
    assert torch.equal(again.model.gain(belief, noise), gain)
    assert not torch.equal(gain, agent.model.imagined_gain(belief, noise))


def test_a_folder_from_before_there_was_hindsight_has_none(folder: Path) -> None:
    description = json.loads((folder / "model.json").read_text())
    assert description["model"].pop("hindsight") is False
    (folder / "model.json").write_text(json.dumps(description))
    agent = infogaze.load(folder)
    assert agent.config == CONFIG
    assert isinstance(agent.model, Model)
    assert agent.model.hindsight is None


def test_weights_in_several_files_are_the_same_weights(tmp_path: Path) -> None:
    agent = tiny_agent()
    infogaze.save(agent, tmp_path / "model", largest_file=3_000)
    files = sorted(path.name for path in (tmp_path / "model").glob("*.safetensors"))
    assert len(files) > 2
    assert files[0] == f"model-1-of-{len(files)}.safetensors"
    largest = max(value.nbytes for value in agent.model.state_dict().values())
    for name in files:
        stored = load_file(tmp_path / "model" / name)
        size = sum(value.nbytes for value in stored.values())
        assert size <= 3_000 or (len(stored) == 1 and size <= largest)
    again = infogaze.load(tmp_path / "model")
    for name, value in agent.model.state_dict().items():
        if not name.endswith(("between.weight", "from_elements.weight", "to_knots.weight")):
            assert torch.equal(again.model.state_dict()[name], value), name


def test_a_missing_or_damaged_file_of_several_is_named(tmp_path: Path) -> None:
    infogaze.save(tiny_agent(), tmp_path / "model", largest_file=3_000)
    last = max((tmp_path / "model").glob("*.safetensors"))
    data = last.read_bytes()
    last.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(ModelFolderError, match=f"{last.name}: damaged"):
        infogaze.load(tmp_path / "model")
    last.unlink()
    with pytest.raises(ModelFolderError, match=f"{last.name}: missing"):
        infogaze.load(tmp_path / "model")


def test_saving_again_leaves_no_file_of_the_time_before(tmp_path: Path) -> None:
    infogaze.save(tiny_agent(), tmp_path / "model", largest_file=3_000)
    infogaze.save(tiny_agent(), tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["model.json", "model.safetensors"]


def test_a_file_that_could_not_be_written_leaves_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write_whole(tmp_path / "kept", b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InfogazeError, match="kept: .*disk is full"):
        write_whole(tmp_path / "kept", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").read_bytes() == b"old"
