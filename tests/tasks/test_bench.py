from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from infogaze.cli.main import main
from infogaze.data.sets import Split
from infogaze.methods.registry import METHODS
from infogaze.presets import preset
from infogaze.tasks.bench import ROWS, flops_per_image, rows_of
from tests.support.calls import refused


def test_bench_writes_every_row_with_its_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "bench.json"
    main(["bench", "digits", "--device", "cpu", "--batch-size", "2", "--seconds", "0", "--out", str(out)])
    record = json.loads(out.read_text())
    assert (record["preset"], record["method"]) == ("digits", "infogaze")
    assert record["device"].startswith("CPU")
    assert [row["row"] for row in record["rows"]] == list(ROWS)
    assert [row["batch_size"] for row in record["rows"]] == [2, 2, 2, 2, 1, 1, 1, 1]
    for row in record["rows"]:
        assert row["images_per_second"] == pytest.approx(1000 * row["batch_size"] / row["milliseconds"])
        assert row["gflop_per_image"] > 0
        assert row["peak_memory_gib"] is None
    assert "images/s" in capsys.readouterr().out


def test_bench_refuses_a_row_or_a_device_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in (
        (["--rows", "phase 9"], ("'phase 9'", "phase 1", "decision")),
        (["--device", "toaster"], ("'toaster'", "auto", "cpu", "cuda:N")),
    ):
        line = refused(capsys, "bench", "digits", *arguments)
        assert all(word in line for word in words)


def test_bench_measures_the_phases_and_decisions_of_another_method(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    given = ["--device", "cpu", "--batch-size", "2", "--seconds", "0", "--out", str(out)]
    main(["bench", "digits", "--method", "dictionary", *given])
    record = json.loads(out.read_text())
    assert record["method"] == "dictionary"
    assert [row["row"] for row in record["rows"]] == list(ROWS)
    work = {row["row"]: row["gflop_per_image"] for row in record["rows"]}
    assert all(gflop > 0 for gflop in work.values())
    assert work["distilled decision"] < 0.1 * work["decision"]
    assert work["distilled scene"] < 0.5 * work["scene"]
    main(["bench", "digits", "--method", "random", "--rows", "phase 2", "decision", *given])
    assert [row["row"] for row in json.loads(out.read_text())["rows"]] == ["phase 2", "decision"]


@pytest.mark.parametrize(("method", "phases"), [("random", 2), ("ram", 2), ("cnn", 1)])
def test_bench_refuses_a_phase_that_a_method_does_not_have(
    method: str, phases: int, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(capsys, "bench", "digits", "--method", method, "--device", "cpu", "--rows", "phase 1", "phase 3")
    assert f"phase 3 of {method} is not there; it has phase 1" in line
    assert f"phase {phases}" in line
    assert f"phase {phases + 1}," not in line


def test_without_rows_all_that_a_method_has_are_measured() -> None:
    assert rows_of("infogaze") == ROWS
    assert rows_of("discriminative") == ("phase 1", "phase 2", "test", "decision", "scene")
    assert rows_of("oracle") == ("phase 1", "phase 2"), "it must be shown the scenes"
    assert rows_of("cnn") == ("phase 1",)


def test_bench_refuses_a_method_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "bench", "digits", "--method", "guessing", "--device", "cpu")
    assert "'guessing'" in line
    assert "dictionary" in line


def test_a_decision_by_dictionary_is_the_head_and_what_is_left_of_r_and_c() -> None:
    settings = preset("digits")
    method = METHODS["dictionary"]
    sizes = method.sizes(settings.model)
    split = Split(
        torch.zeros(4, sizes.channels, sizes.height, sizes.width, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64)
    )
    counted = flops_per_image("decision", "dictionary", replace(settings, model=sizes), split=split)
    places, entries, h = sizes.grid.num_locations, sizes.dictionary_entries, sizes.belief_size
    # What needs no belief was made of every place, and by R of every entry there, before; decisions have it.
    head = h * h + places * (h * h + h * entries)
    look = h * h + places * settings.num_entries * h * sizes.num_classes + h * sizes.num_classes
    assert counted == pytest.approx(2 * (head + look), rel=0.01)


def test_what_is_done_once_a_step_is_no_operation_of_an_image() -> None:
    settings = preset("digits")
    sizes = replace(METHODS["dictionary"].sizes(settings.model), dictionary_entries=2000)
    split = Split(torch.zeros(4, 1, 32, 32, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64))
    counted = flops_per_image("phase 3", "dictionary", replace(settings, model=sizes), split=split)
    table = 2 * sizes.grid.num_locations * 2000 * sizes.feature_size * sizes.belief_size
    assert counted < table / 2


def test_the_operations_of_phase_1_are_those_of_the_tables() -> None:
    settings = preset("cifar10")
    split = Split(torch.zeros(4, 3, 32, 32, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64))
    glimpse = 36 * 64 * 27 + 16 * 128 * 64 * 9 + 4 * 256 * 128 * 9 + 128 * 256 * 4
    place, features, hidden, classes = 2 * 128, 128 * 512, 512 * 512, 512 * 10
    forward = 7 * (glimpse + place + features + hidden + classes)
    # Twice as much again for the gradients of weights and inputs, but for the first convolution's and location's inputs
    # and the state before the first look.
    backward = 2 * forward - 7 * (36 * 64 * 27 + place) - hidden
    counted = flops_per_image("phase 1", "infogaze", settings, split=split)
    assert counted == pytest.approx(2 * (forward + backward), rel=0.01)


def test_a_preset_with_flip_tta_is_tested_with_it() -> None:
    alone = replace(preset("digits"), horizontal_flip=True)
    sizes = alone.model
    split = Split(
        torch.zeros(4, sizes.channels, sizes.height, sizes.width, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64)
    )

    def counted(row: str, flip_tta: bool) -> float:
        return flops_per_image(row, "infogaze", replace(alone, flip_tta=flip_tta), split=split)

    # A phase 1 is a forward pass over as many looks, and a backward pass of about twice as much.
    more = counted("test", True) - counted("test", False)
    assert more == pytest.approx(counted("phase 1", False) / 3, rel=0.2)
    assert counted("phase 1", True) == counted("phase 1", False)
