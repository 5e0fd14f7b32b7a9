"""What an export is: files that its contract describes, the same each time; and what is refused, in a line."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import infogaze
from infogaze import InfogazeError
from infogaze.cli.main import main
from infogaze.export import write
from tests.support.exported import looking, onnx_loop
from tests.support.methods import agent_of, made
from tests.support.paths import ROOT
from tests.support.tiny import CONFIG, TOKEN_SIZES, scenes


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    infogaze.export_onnx(looking("random"), folder)
    return folder


def test_the_contract_describes_the_files(exported: Path) -> None:
    contract = json.loads((exported / "contract.json").read_text())
    assert set(contract["graphs"]) == {"see", "decide"}
    assert {path.name for path in exported.iterdir()} == {"see.onnx", "decide.onnx", "contract.json"}
    for graph in contract["graphs"].values():
        data = (exported / graph["file"]).read_bytes()
        assert (graph["bytes"], graph["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    places = [[row, col] for row in contract["rows"] for col in contract["cols"]]
    assert places == CONFIG.grid.locations().tolist()
    sizes = [contract[name] for name in ("height", "width", "channels", "glimpse_size")]
    assert sizes == [CONFIG.height, CONFIG.width, CONFIG.channels, CONFIG.glimpse_size]
    assert (contract["noise"], contract["has_map"]) == ({"kind": "uniform", "count": len(places)}, False)
    assert (contract["method"], contract["temperatures"], contract["stop"]) == ("random", None, None)


def test_the_contract_names_what_graphs_take_and_give(exported: Path) -> None:
    model = onnx_loop().Model(exported)
    for name, graph in model.contract["graphs"].items():
        session = model.graphs[name]
        for told, found in ((graph["inputs"], session.get_inputs()), (graph["outputs"], session.get_outputs())):
            assert [port["name"] for port in told] == [value.name for value in found]
            assert [port["shape"] for port in told] == [value.shape for value in found]
            assert {port["dtype"] for port in told} <= {"float32", "bool"}
    assert [port["name"] for port in model.contract["graphs"]["decide"]["inputs"]] == ["allowed", "noise"]


def test_the_same_model_is_the_same_bytes_and_tells_nothing_of_where_it_was_exported(
    exported: Path, tmp_path: Path
) -> None:
    infogaze.export_onnx(looking("random"), tmp_path)
    for path in exported.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()
        assert str(ROOT).encode() not in path.read_bytes()
        assert b"site-packages" not in path.read_bytes()


def test_graphs_are_valid_for_onnx(exported: Path) -> None:
    for path in exported.glob("*.onnx"):
        onnx.checker.check_model(onnx.load(path), full_check=True)


def test_a_scene_is_the_same_in_any_batch(exported: Path) -> None:
    loop = onnx_loop()
    model, pictures, seeds = loop.Model(exported), scenes(4).numpy(), loop.scene_seeds(1, 4)

    def seen(some: slice) -> np.ndarray:
        episode = loop.Episode(model, seeds[some])
        while not episode.done:
            episode.observe(loop.glimpses(pictures[some], episode.next_location(), CONFIG.glimpse_size))
        return np.array(episode.probabilities)

    np.testing.assert_allclose(np.concatenate([seen(slice(0, 1)), seen(slice(1, 4))]), seen(slice(0, 4)), atol=1e-5)


@pytest.mark.parametrize("method", ["cnn", "oracle"])
def test_what_cannot_be_deployed_is_refused_in_a_line(method: str, tmp_path: Path) -> None:
    with pytest.raises(
        InfogazeError, match=f"^a model by {method} sees .* cannot be exported; .* infogaze, dictionary"
    ) as told:
        infogaze.export_onnx(agent_of(method, made(method)), tmp_path / "out")
    assert "\n" not in str(told.value)
    assert not (tmp_path / "out").exists()


def test_a_model_of_ones_own_and_a_policy_that_is_shown_scenes_are_refused(tmp_path: Path) -> None:
    agent = looking("random")
    own = infogaze.Agent(agent.model, agent.classes, policy=agent.policy)
    with pytest.raises(InfogazeError, match="no origin, so it cannot be exported"):
        infogaze.export_onnx(own, tmp_path)
    shown = agent.with_policy(agent_of("oracle", made("oracle")).policy)
    with pytest.raises(InfogazeError, match="must be shown the scenes"):
        infogaze.export_onnx(shown, tmp_path)
    agent.precision = "bfloat16"
    with pytest.raises(InfogazeError, match="products in bfloat16"):
        infogaze.export_onnx(agent, tmp_path)


def test_a_policy_that_draws_twice_is_refused(tmp_path: Path) -> None:
    class Twice(infogaze.RandomPolicy):
        def __call__(self, model, belief, *, candidates, noise):  # type: ignore[no-untyped-def]
            noise.normal(2)
            return super().__call__(model, belief, candidates=candidates, noise=noise)

    with pytest.raises(InfogazeError, match="draws 2 times for a decision"):
        infogaze.export_onnx(looking("random").with_policy(Twice()), tmp_path)


def test_room_for_looks_is_for_tokens_and_at_least_the_budget(tmp_path: Path) -> None:
    with pytest.raises(InfogazeError, match="max_looks is 9; this model's belief takes any number"):
        infogaze.export_onnx(looking("random"), tmp_path, max_looks=9)
    with pytest.raises(InfogazeError, match="max_looks is 3; it must be at least the budget, 4"):
        infogaze.export_onnx(looking("random", replace(TOKEN_SIZES)), tmp_path, max_looks=3)


def test_a_missing_package_is_one_line_that_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "find_spec", lambda name: None if name == "onnxruntime" else True)
    with pytest.raises(InfogazeError, match=r"onnxruntime is missing\): pip install 'infogaze\[export\]'"):
        infogaze.export_onnx(looking("random"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_writes_a_model_folder_once_and_again_if_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    infogaze.save(looking("random"), tmp_path / "model")
    out = tmp_path / "out"
    main(["export", str(tmp_path / "model"), str(out)])
    assert "decide.onnx" in capsys.readouterr().out
    first = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(SystemExit, match="2"):
        main(["export", str(tmp_path / "model"), str(out)])
    assert "holds an export already; --overwrite writes over it" in capsys.readouterr().err
    (out / "imagine.onnx").write_bytes(b"of another model")
    main(["export", str(tmp_path / "model"), str(out), "--overwrite"])
    assert {path.name: path.read_bytes() for path in out.iterdir()} == first


def test_a_file_is_no_folder_to_export_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit, match="2"):
        main(["export", "digits", str(tmp_path / "file")])
    assert "file: a file, and a folder is needed" in capsys.readouterr().err
