"""The table that a sweep prints as it fills."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from infogaze.evaluation import store
from infogaze.evaluation.exact_pass import Records
from infogaze.sweep.table import table
from tests.support.evaluations import MadeUp, write_run
from tests.support.sweeps import run_here, tiny_set


def row(table: list[str], name: str) -> tuple[list[float], list[float], str]:
    """Means and half widths of a row, and what is said of its seeds."""
    (line,) = [line for line in table if re.match(rf"{name}\b", line)]
    cells = re.findall(r"([\d.]+) ±\s*([\d.]+)", line)
    return [float(mean) for mean, _ in cells], [float(half) for _, half in cells], line.rsplit("   ", 1)[1]


def test_the_table_has_the_mean_over_seeds_and_students_interval_or_with_one_seed_wilsons(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFOGAZE_CACHE", str(tmp_path / "cache"))
    asked = ("--methods", "random,oracle,cnn", "--seeds", "3", "--measure", "records")
    swept = run_here(capsys, tiny_set(tmp_path, monkeypatch), tmp_path / "out", *asked)
    (tmp_path / "out" / "cnn" / "seed-1" / "evaluation" / "about.json").unlink()
    (tmp_path / "out" / "cnn" / "seed-2" / "evaluation" / "about.json").unlink()
    # Of the CNN one seed is left, which only shows in a table that is made now.
    whole = [*swept.table[:3], *table(tmp_path / "out", ["cnn"], 3).splitlines()[1:]]
    assert whole[0].split() == ["accuracy", "by", "look,", "%", "0", "1", "2"]
    widths = 0.0
    for name in ("random", "oracle"):
        folders = [tmp_path / "out" / name / f"seed-{seed}" / "evaluation" for seed in range(3)]
        shares = 100 * np.stack([store.read(folder, Records).correct.numpy().mean(0) for folder in folders])
        half = stats.t.ppf(0.975, 2) * stats.sem(shares, axis=0)
        means, halves, seeds = row(whole, name)
        assert means == pytest.approx(shares.mean(0), abs=0.0501)
        assert halves == pytest.approx(half, abs=0.0501)
        assert seeds == "3 of 3 seeds"
        widths += sum(halves)
    assert widths > 0
    correct = store.read(tmp_path / "out" / "cnn" / "seed-0" / "evaluation", Records).correct[:, 0]
    wilson = stats.binomtest(int(correct.sum()), len(correct)).proportion_ci(method="wilson")
    means, halves, seeds = row(whole, "cnn")
    assert means == pytest.approx([100 * float(correct.double().mean())], abs=0.0501)
    assert halves == pytest.approx([100 * (wilson.high - wilson.low) / 2], abs=0.0501)
    assert seeds == "1 of 3 seeds"
    assert "oracle, not deployable" in whole[2]
    assert "cnn, sees all" in whole[3]


def laid_out(out: Path, run: MadeUp, **changes: object) -> Path:
    """A made-up evaluation where a sweep has it."""
    folder = out / run.method / f"seed-{run.seed}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    return write_run(out / "made", run, **changes).rename(folder)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"test": "another"}, "cannot be compared: another test set (another and d1ge57) of shapes"),
        ({"first_looks": 9}, "cannot be compared: another seed of first looks (9 and 0) of shapes"),
        ({"num_looks": 3}, "cannot be compared: another budget of looks (3 and 7) of shapes"),
        ({"flip_tta": True}, "cannot be one curve: ram used horizontal-flip test-time augmentation in one"),
        ({"val_fraction": 0.5}, "cannot be one curve: ram had a validation split of 0.5 in one and 0 in the other"),
        (
            {"num_labels": 400},
            "cannot be one curve: ram was trained by the recipe custom c0ffee, 400 labels in one and",
        ),
        ({"teacher": "0" * 64}, "cannot be one curve: ram had a teacher in one and none in the other"),
    ],
    ids=["test set", "first looks", "budget", "flip_tta", "val_fraction", "num_labels", "teacher"],
)
def test_what_the_report_would_refuse_is_left_out_of_the_table_and_said(
    changes: dict[str, object], reason: str, tmp_path: Path
) -> None:
    laid_out(tmp_path, MadeUp("random", 0, parts=()))
    first = laid_out(tmp_path, MadeUp("ram", 0, parts=()))
    odd = laid_out(tmp_path, MadeUp("ram", 1, (59,) * 7, parts=()), **changes)
    laid_out(tmp_path, MadeUp("ram", 2, parts=()))
    lines = table(tmp_path, ["random", "ram"], 3).splitlines()
    means, _, seeds = row(lines, "ram")
    assert means[1] == pytest.approx(100 * (26 + 28) / 2 / 60, abs=0.0501), (
        "of seeds 0 and 2, which has two more correct"
    )
    assert seeds == "2 of 3 seeds"
    against = tmp_path / "random" / "seed-0" if "compared" in reason else first
    (left_out,) = lines[3:]
    assert left_out.startswith(f"left out: {odd} and {against} {reason}")


def test_evaluations_that_cannot_be_read_or_stacked_do_not_end_the_table(tmp_path: Path) -> None:
    laid_out(tmp_path, MadeUp("random", 0, parts=()))
    for seed, name in ((1, "records.safetensors"), (2, "about.json")):
        path = laid_out(tmp_path, MadeUp("random", seed, parts=())) / "evaluation" / name
        path.write_bytes(path.read_bytes()[:-5])
    short = laid_out(tmp_path, MadeUp("random", 3, (20, 30), parts=()))
    head, line, *left_out = table(tmp_path, ["random"], 4).splitlines()
    assert row([head, line], "random")[2] == "1 of 4 seeds"
    assert [f"seed-{seed}" in said for seed, said in enumerate(left_out, start=1)] == [True] * 3
    assert "damaged or truncated" in left_out[0]
    assert "not a description of an evaluation" in left_out[1]
    assert str(short) in left_out[2]


def test_flip_tta_is_marked_in_the_table(tmp_path: Path) -> None:
    laid_out(tmp_path, MadeUp("infogaze", parts=()), flip_tta=True)
    assert table(tmp_path, ["infogaze"], 1).splitlines()[1].startswith("infogaze, flip TTA  ")
