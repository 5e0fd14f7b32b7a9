from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import infogaze
from infogaze import (
    METHODS,
    Agent,
    CalibratedStop,
    DistilledPolicy,
    GainPolicy,
    ImageSensor,
    Model,
    ModelConfig,
    ModelFolderError,
    Origin,
    RandomPolicy,
)
from infogaze.errors import InfogazeError
from infogaze.files import write_whole
from infogaze.methods.registry import build_for
from infogaze.model_description import FORMAT
from infogaze.models import bundled, make_agent, store_distilled, store_stop, weights_digest
from infogaze.nn.dictionary import Dictionary
from infogaze.nn.distilled import DistilledGain
from infogaze.nn.pixels import normalise_pixels
from infogaze.nn.typicality import fit_typicality
from infogaze.pictures import Fit
from tests.support.tiny import CONFIG, PRESET_SIZES, TOKENS, WITH_CORRECTION, scenes, tiny_agent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    infogaze.save(tiny_agent(), tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("config", [CONFIG, TOKENS], ids=["vector", "tokens"])
def test_a_saved_agent_comes_back_the_same(config: ModelConfig, tmp_path: Path) -> None:
    infogaze.save(tiny_agent(config), tmp_path)
    agent, again = tiny_agent(config), infogaze.load(tmp_path)
    for name in ("classes", "num_looks", "origin", "flip_tta", "fit", "temperatures", "typicality", "stop"):
        assert getattr(again, name) == getattr(agent, name), name
    assert_alike(agent, again)


def test_a_folder_that_says_nothing_of_tokens_has_none(folder: Path) -> None:
    sizes = described(folder)["model"]
    assert (sizes.pop("token_layers"), sizes.pop("token_heads")) == (0, CONFIG.token_heads)
    rewrite(folder, model=sizes)
    again = infogaze.load(folder)
    assert again.origin == tiny_agent().origin
    assert_alike(tiny_agent(), again)


def assert_alike(agent: Agent, again: Agent) -> None:
    """The same weights, as far as they are ever used, and the same looks."""
    for name, value in agent.model.state_dict().items():
        if not name.endswith(("between.weight", "from_elements.weight", "to_knots.weight")):
            assert torch.equal(again.model.state_dict()[name], value), name
    one, other = (a.run(ImageSensor(scenes(3), CONFIG.glimpse_size), batch=3) for a in (agent, again))
    torch.testing.assert_close(one.probabilities, other.probabilities)
    torch.testing.assert_close(one.gain, other.gain)
    assert torch.equal(one.history[-1].location, other.history[-1].location)


@pytest.mark.parametrize("flip_tta", [False, True])
@pytest.mark.parametrize("fit", ["crop", "resize", "pad"])
def test_how_scenes_are_made_and_classified_is_saved(flip_tta: bool, fit: Fit, tmp_path: Path) -> None:
    agent = tiny_agent()
    agent.flip_tta, agent.fit = flip_tta, fit
    infogaze.save(agent, tmp_path)
    again = infogaze.load(tmp_path)
    assert (again.flip_tta, again.fit) == (flip_tta, fit)


def test_masked_weights_are_not_stored(folder: Path) -> None:
    stored = load_file(folder / "model.safetensors")
    weight = stored["imagination.posterior.layers.0.spline.between.weight"]
    assert weight.shape == (CONFIG.latent_size * (CONFIG.latent_size + 1) // 2,)


def test_half_precision_halves_the_file_and_loads_as_float32(tmp_path: Path) -> None:
    infogaze.save(tiny_agent(), tmp_path / "full")
    infogaze.save(tiny_agent(), tmp_path / "half", dtype=torch.float16)
    sizes = [sum(t.nbytes for t in load_file(tmp_path / n / "model.safetensors").values()) for n in ("full", "half")]
    assert sizes[1] < 0.51 * sizes[0]
    again = infogaze.load(tmp_path / "half").model
    assert {value.dtype for value in again.parameters()} == {torch.float32}


def described(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "model.json").read_text())
    return found


def rewrite(folder: Path, **changes: object) -> None:
    (folder / "model.json").write_text(json.dumps({**described(folder), **changes}))


def reweigh(folder: Path, change: dict[str, torch.Tensor]) -> None:
    """Other tensors, with a digest that fits them."""
    path = folder / "model.safetensors"
    save_file({**load_file(path), **change}, path)
    rewrite(folder, weights={"model.safetensors": digest_of(path)})


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


OLD_FIELDS = {"num_looks": "looks", "num_samples": "samples", "flip_tta": "twin"}
OLD_SIZES = {
    "num_classes": "classes", "glimpse_size": "glimpse", "residual_belief": "keeping", "gain_correction": "hindsight",
}  # fmt: skip


def without_imagination(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Named as when S, D and sigma^2 were the model's own, and not its imagination's."""
    return {name.removeprefix("imagination."): value for name, value in tensors.items()}


def as_format_1(folder: Path) -> dict[str, Any]:
    """Rewrite a model folder in the words of the first format; its description."""
    path = folder / "model.safetensors"
    tensors = {name.replace("correction.", "hindsight."): value for name, value in load_file(path).items()}
    save_file(without_imagination(tensors), path)
    found = described(folder)
    old = {OLD_FIELDS.get(name, name): value for name, value in found.items()}
    del old["ood_threshold"], old["typicality"], old["temperatures"]
    old["model"] = {OLD_SIZES.get(name, name): value for name, value in found["model"].items()}
    old |= {"format": 1, "weights": {path.name: digest_of(path)}}
    (folder / "model.json").write_text(json.dumps(old))
    return old


def test_a_folder_of_the_first_format_loads_as_the_same_model(tmp_path: Path) -> None:
    agent = tiny_agent(replace(WITH_CORRECTION, residual_belief=True))
    agent.flip_tta, agent.fit = True, "pad"
    infogaze.save(agent, tmp_path)
    old = as_format_1(tmp_path)
    assert {"looks", "samples", "twin"} <= set(old)
    assert {"classes", "glimpse", "keeping", "hindsight"} <= set(old["model"])
    begins = {name.partition(".")[0] for name in load_file(tmp_path / "model.safetensors")}
    assert begins == {"backbone", "posterior", "decoder", "log_variance", "hindsight"}
    again = infogaze.load(tmp_path)
    assert (again.origin, again.num_looks, again.flip_tta, again.fit) == (agent.origin, agent.num_looks, True, "pad")
    assert again.typicality is None
    assert_alike(agent, again)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("infogaze", "paper-corrected"), ("infogaze", "paper"), ("no-hindsight", "paper"), ("gaussian", "gaussian-corrected"),
        ("gaussian", "gaussian"), ("gaussian-no-hindsight", "gaussian"), ("attention", "attention"), ("ram-plus", "ram-plus"),
        ("cnn", "cnn"),
    ],
)  # fmt: skip
def test_methods_of_the_first_format_have_their_names_of_today(old: str, new: str, tmp_path: Path) -> None:
    origin = saved_by(new, tmp_path)
    as_format_1(tmp_path)
    rewrite(tmp_path, method=old)
    assert infogaze.load(tmp_path).origin == origin


def saved_by(method: str, folder: Path) -> Origin:
    """Save a fresh model of the method; what it is."""
    config = METHODS[method].sizes(PRESET_SIZES)
    origin = Origin(method=method, config=config, num_samples=5)
    infogaze.save(make_agent(build_for(method, config), ("a", "b", "c"), origin=origin, num_looks=4), folder)
    return origin


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("infogaze", "paper-corrected"), ("infogaze", "paper"), ("infogaze-gaussian", "gaussian-corrected"),
        ("infogaze-gaussian", "gaussian"), ("paper", "paper"), ("gaussian", "gaussian"), ("attention", "attention"),
        ("dictionary", "dictionary"), ("discriminative", "discriminative"), ("cnn", "cnn"),
    ],
)  # fmt: skip
def test_methods_of_the_second_format_have_their_names_of_today(old: str, new: str, tmp_path: Path) -> None:
    origin = saved_by(new, tmp_path / "model")
    rewrite(tmp_path / "model", format=2, method=old)
    again = infogaze.load(tmp_path / "model")
    assert again.origin == origin
    infogaze.save(again, tmp_path / "again")
    written = described(tmp_path / "again")
    assert (written["format"], written["method"]) == (FORMAT, new)


@pytest.mark.parametrize("config", [CONFIG, WITH_CORRECTION], ids=["plain", "corrected"])
def test_a_folder_of_the_second_format_loads_as_the_same_model(config: ModelConfig, tmp_path: Path) -> None:
    agent = tiny_agent(config)
    infogaze.save(agent, tmp_path)
    rewrite(tmp_path, format=2, method="infogaze")
    assert_alike(agent, infogaze.load(tmp_path))


def test_a_folder_of_today_by_infogaze_imagines_by_dictionary_with_a_correction(tmp_path: Path) -> None:
    origin = saved_by("infogaze", tmp_path)
    again = infogaze.load(tmp_path)
    assert again.origin == origin
    assert isinstance(again.model, Model)
    assert isinstance(again.model.imagination, Dictionary)
    assert again.model.correction is not None


def test_what_a_folder_of_the_first_format_leaves_out_is_as_it_was_then(folder: Path) -> None:
    old = as_format_1(folder)
    del old["method"], old["twin"], old["fit"], old["model"]["hindsight"], old["model"]["keeping"]
    (folder / "model.json").write_text(json.dumps(old))
    agent = infogaze.load(folder)
    assert agent.origin == tiny_agent().origin
    assert (agent.flip_tta, agent.fit) == (False, "crop")
    assert isinstance(agent.model, Model)
    assert agent.model.correction is None


def test_a_folder_of_the_first_format_is_written_anew_in_todays_words(folder: Path, tmp_path: Path) -> None:
    as_format_1(folder)
    infogaze.save(infogaze.load(folder), tmp_path / "again")
    assert described(tmp_path / "again")["format"] == FORMAT
    assert_alike(infogaze.load(folder), infogaze.load(tmp_path / "again"))


@pytest.mark.parametrize("config", [CONFIG, WITH_CORRECTION], ids=["plain", "corrected"])
def test_weights_named_before_there_was_an_imagination_load_and_are_written_by_their_names_of_today(
    config: ModelConfig, tmp_path: Path
) -> None:
    agent, path = tiny_agent(config), tmp_path / "model" / "model.safetensors"
    infogaze.save(agent, path.parent)
    today = load_file(path)
    old = without_imagination(today)
    save_file(old, path)
    rewrite(path.parent, weights={path.name: digest_of(path)})
    assert described(path.parent)["format"] == FORMAT
    assert not old.keys() & {name for name in today if name.startswith("imagination.")}
    assert {"posterior", "decoder", "log_variance"} <= {name.partition(".")[0] for name in old}
    again = infogaze.load(path.parent)
    assert_alike(agent, again)
    infogaze.save(again, tmp_path / "again")
    written = load_file(tmp_path / "again" / path.name)
    assert written.keys() == today.keys()
    assert all(torch.equal(written[name], value) for name, value in today.items())


def test_a_field_left_out_of_a_folder_of_today_is_named(folder: Path) -> None:
    found = described(folder)
    del found["flip_tta"]
    (folder / "model.json").write_text(json.dumps(found))
    with pytest.raises(ModelFolderError, match=r"model\.json: .*flip_tta is missing"):
        infogaze.load(folder)


def test_a_folder_of_another_version_is_refused(folder: Path) -> None:
    rewrite(folder, format=99)
    with pytest.raises(ModelFolderError, match=rf"model\.json: format 99, .* reads formats 1 to {FORMAT}"):
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


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "[]",
        "null",
        '{"format": 1}',
        '{"format": 2}',
        '{"format": 3}',
        *(f'{{"format": {n}, "model": {{"height": "tall"}}}}' for n in (1, 2, 3)),
    ],
)
def test_a_description_of_something_else_is_refused(folder: Path, content: str) -> None:
    (folder / "model.json").write_text(content)
    with pytest.raises(ModelFolderError, match=r"model\.json: not a"):
        infogaze.load(folder)


def test_a_folder_of_an_unknown_method_is_refused_with_the_known_ones(folder: Path) -> None:
    rewrite(folder, method="guesswork")
    with pytest.raises(
        ModelFolderError, match=r"model\.json: .*'guesswork'; there are infogaze, dictionary, paper, gaussian"
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
    with pytest.raises(InfogazeError, match="has no origin"):
        infogaze.save(Agent(tiny_agent().model, ["a", "b", "c"], policy=RandomPolicy()), tmp_path)


def test_class_names_must_match_the_model() -> None:
    with pytest.raises(ValueError, match="2 class names for a model of 3 classes"):
        Agent(tiny_agent().model, ["a", "b"], policy=RandomPolicy(), origin=tiny_agent().origin)


def test_bundled_models_load_and_know_their_classes() -> None:
    assert "digits" in bundled()
    for name in bundled():
        agent = infogaze.load(name)
        assert len(agent.classes) > 1
        assert agent.typicality is not None, "each knows scenes unlike those of its training"


def test_bundled_models_are_small_and_those_of_real_images_have_a_card() -> None:
    home = Path(infogaze.__file__).parent / "bundled"
    assert sum(file.stat().st_size for file in home.rglob("*") if file.is_file()) <= 80_000_000
    for name in set(bundled()) - {"digits"}:
        card = (home / name / "MODEL_CARD.md").read_text()
        assert card.startswith(f'# {name}\n\n`infogaze.load("{name}")`')
        parts = ["Networks", "Data", "Procedure", "Numbers", "For", "Not for"]
        assert [line.removeprefix("## ") for line in card.splitlines() if line.startswith("## ")] == parts, name
        stored = {value.dtype for file in home.glob(f"{name}/model*.safetensors") for value in load_file(file).values()}
        assert {dtype for dtype in stored if dtype.is_floating_point} == {torch.float16}, name


def test_a_model_with_a_gain_correction_comes_back_with_its_gain(tmp_path: Path) -> None:
    agent = tiny_agent(WITH_CORRECTION)
    infogaze.save(agent, tmp_path)
    again = infogaze.load(tmp_path)
    assert again.origin is not None
    assert again.origin.config == WITH_CORRECTION
    belief, noise = agent.model.backbone.start(2), torch.randn(2, 3, CONFIG.latent_size)
    assert isinstance(agent.model, Model)
    assert isinstance(again.model, Model)
    gain = agent.model.gain(belief, 3, noise=noise)
    torch.testing.assert_close(again.model.gain(belief, 3, noise=noise), gain)
    assert float((gain - agent.model.imagined_gain(belief, 3, noise=noise)).detach().abs().max()) > 1e-3


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
    assert_alike(agent, infogaze.load(tmp_path / "model"))


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
    infogaze.save(with_typicality(), tmp_path / "model", largest_file=3_000)
    infogaze.save(tiny_agent(), tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["model.json", "model.safetensors"]


def with_typicality() -> Agent:
    """An agent that knows the glimpses of even grey scenes, and so takes noise for something else."""
    agent = tiny_agent()
    shape = (120, 3, CONFIG.channels, CONFIG.glimpse_size, CONFIG.glimpse_size)
    grey = torch.randint(100, 110, shape, generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    with torch.no_grad():
        agent.typicality = fit_typicality(agent.model.backbone.features(normalise_pixels(grey)))
    return agent


def test_what_is_typical_of_training_is_saved_and_loaded(tmp_path: Path) -> None:
    agent = with_typicality()
    infogaze.save(agent, tmp_path)
    again = infogaze.load(tmp_path)
    assert agent.typicality is not None
    assert again.typicality is not None
    assert torch.equal(again.typicality.mean, agent.typicality.mean)
    assert torch.equal(again.typicality.whitening, agent.typicality.whitening)
    assert again.typicality.threshold == agent.typicality.threshold
    grey = torch.full((CONFIG.channels, CONFIG.height, CONFIG.width), 105, dtype=torch.uint8)
    for one in (agent, again):
        assert one.classify(scenes(1)[0]).out_of_distribution
        assert not one.classify(grey).out_of_distribution
    assert not tiny_agent().classify(scenes(1)[0]).out_of_distribution, "who does not know, does not say so"


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")


def other_shapes(path: Path) -> None:
    save_file({"mean": torch.zeros(4), "whitening": torch.eye(4)}, path)
    rewrite(path.parent, typicality=digest_of(path))


def not_a_number(path: Path) -> None:
    save_file({**load_file(path), "mean": torch.full((CONFIG.feature_size,), torch.nan)}, path)
    rewrite(path.parent, typicality=digest_of(path))


def elsewhere(path: Path) -> None:
    path.rename(path.parent.parent / "outside.safetensors")
    path.symlink_to(path.parent.parent / "outside.safetensors")


@pytest.mark.parametrize(
    ("tamper", "said"),
    [
        (damage, "digest"), (Path.unlink, "missing"), (other_shapes, f"{CONFIG.feature_size} features"),
        (not_a_number, "NaN"), (elsewhere, "link"),
    ],
)  # fmt: skip
def test_a_tampered_file_of_typical_glimpses_is_refused(
    tamper: Callable[[Path], object], said: str, tmp_path: Path
) -> None:
    infogaze.save(with_typicality(), tmp_path / "model")
    tamper(tmp_path / "model" / "typicality.safetensors")
    with pytest.raises(ModelFolderError, match=rf"typicality\.safetensors: .*{said}"):
        infogaze.load(tmp_path / "model")


def with_distilled() -> Agent:
    """An agent with a gain that has learned nothing."""
    agent = tiny_agent()
    agent.distilled = DistilledGain(CONFIG.belief_size, CONFIG.grid.num_locations)
    for number, value in enumerate(agent.distilled.parameters()):
        value.data.normal_(generator=torch.Generator().manual_seed(number))
    return agent


def test_a_distilled_gain_is_saved_and_chosen_by_when_it_is_asked_for(folder: Path, tmp_path: Path) -> None:
    agent, before = with_distilled(), weights_digest(folder)
    assert agent.distilled is not None
    infogaze.save(agent, tmp_path / "model")
    exact, fast = infogaze.load(tmp_path / "model"), infogaze.load(tmp_path / "model", gain="distilled")
    assert isinstance(exact.policy, GainPolicy)
    assert isinstance(fast.policy, DistilledPolicy)
    for again in (exact.distilled, fast.policy.distilled):
        assert again is not None
        assert all(torch.equal(a, b) for a, b in zip(again.parameters(), agent.distilled.parameters(), strict=True))
    store_distilled(folder, agent.distilled)
    assert infogaze.load(folder, gain="distilled").distilled is not None
    assert weights_digest(folder) == before, "what was measured of the exact gain holds"
    assert "distilled" not in str(sorted(load_file(folder / "model.safetensors")))
    infogaze.save(tiny_agent(), tmp_path / "model")
    assert not (tmp_path / "model" / "gain.safetensors").exists()
    with pytest.raises(InfogazeError, match="no distilled gain"):
        infogaze.load(tmp_path / "model", gain="distilled")


def other_gain(path: Path) -> None:
    save_file(DistilledGain(CONFIG.belief_size, 3).state_dict(), path)
    rewrite(path.parent, distilled=digest_of(path))


def gain_that_is_no_number(path: Path) -> None:
    tensors = load_file(path)
    save_file({name: torch.full_like(value, torch.nan) for name, value in tensors.items()}, path)
    rewrite(path.parent, distilled=digest_of(path))


@pytest.mark.parametrize(
    ("tamper", "said"),
    [
        (damage, "digest"), (Path.unlink, "missing"), (other_gain, "a gain for this model"),
        (gain_that_is_no_number, "NaN"), (elsewhere, "link"),
    ],
)  # fmt: skip
def test_a_tampered_file_of_a_distilled_gain_is_refused(
    tamper: Callable[[Path], object], said: str, tmp_path: Path
) -> None:
    infogaze.save(with_distilled(), tmp_path / "model")
    tamper(tmp_path / "model" / "gain.safetensors")
    with pytest.raises(ModelFolderError, match=rf"gain\.safetensors: .*{said}"):
        infogaze.load(tmp_path / "model")


def test_a_calibrated_rule_is_stored_with_the_model_and_leaves_its_weights_alone(folder: Path, tmp_path: Path) -> None:
    rule = CalibratedStop(
        rule="entropy", thresholds=(None, 0.25, 0.5), budget=4, gap=0.01, delta=0.05, by_look=True, scenes=900
    )
    before = weights_digest(folder)
    store_stop(folder, rule)
    again = infogaze.load(folder)
    assert again.stop == rule
    assert weights_digest(folder) == before
    infogaze.save(again, tmp_path / "copy")
    assert infogaze.load(tmp_path / "copy").stop == rule
    store_stop(folder, None)
    assert infogaze.load(folder).stop is None
    rewrite(folder, stop={**described(tmp_path / "copy")["stop"], "thresholds": [0.1]})
    with pytest.raises(ModelFolderError, match=r"model\.json: .*thresholds has 1 numbers"):
        infogaze.load(folder)


def test_temperatures_are_saved_and_make_it_another_model(folder: Path) -> None:
    before = weights_digest(folder)
    agent = tiny_agent()
    agent.temperatures = (1.25, 0.8)
    infogaze.save(agent, folder)
    again = infogaze.load(folder)
    assert again.temperatures == (1.25, 0.8)
    assert_alike(agent, again)
    assert weights_digest(folder) != before
    rewrite(folder, temperatures=None)
    assert infogaze.load(folder).temperatures is None
    assert weights_digest(folder) == before


@pytest.mark.parametrize("wrong", [[], [0.0], [1.0, -2.0], "1.0", [True]])
def test_a_description_with_no_such_temperatures_is_refused(wrong: Any, folder: Path) -> None:
    rewrite(folder, temperatures=wrong)
    with pytest.raises(ModelFolderError, match=r"model\.json: .*temperatures"):
        infogaze.load(folder)


@pytest.mark.parametrize("alone", [{"typicality": None}, {"ood_threshold": None}])
def test_a_threshold_and_the_statistics_behind_it_belong_together(alone: dict[str, None], tmp_path: Path) -> None:
    infogaze.save(with_typicality(), tmp_path)
    rewrite(tmp_path, **alone)
    with pytest.raises(ModelFolderError, match=r"model\.json: .*ood_threshold and typicality"):
        infogaze.load(tmp_path)


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
