from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from infogaze.data.contact_sheet import draw_contact_sheet
from infogaze.data.inspection import check, list_sets
from infogaze.data.options import ReadOptions
from infogaze.data.registry import SETS
from infogaze.errors import DataError
from tests.support.sets import noise, write_image


def test_every_set_is_listed_with_how_to_get_it() -> None:
    rows = list_sets()
    assert [row.name for row in rows] == list(SETS)
    assert all(row.images and row.size and row.origin and row.get for row in rows)


def test_the_list_says_of_the_digits_what_they_are() -> None:
    [row] = [row for row in list_sets() if row.name == "digits"]
    findings = check("digits")
    totals = [sum(findings.counts[part].values()) for part in ("train", "test")]
    assert row.images == f"{totals[0]:,} + {totals[1]:,}"
    assert findings.shape is not None
    channels, height, width = findings.shape
    assert row.size == f"{height}x{width}x{channels}"


def test_check_counts_by_split_and_class_and_caches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFOGAZE_CACHE", str(tmp_path / "cache"))
    for part, counts in {"train": {"a": 3, "b": 2}, "test": {"a": 1}}.items():
        for name, count in counts.items():
            for k in range(count):
                write_image(tmp_path / "root" / part / name / f"{k}.png", noise(k, 5, 4))
    told: list[tuple[int, int]] = []
    findings = check("folder", tmp_path / "root", progress=lambda done, total: told.append((done, total)))
    assert findings.problems == ()
    assert findings.counts == {"train": {"a": 3, "b": 2}, "test": {"a": 1, "b": 0}}
    assert findings.shape == (1, 5, 4)
    assert told == [(5, 6), (6, 6)]
    assert not (tmp_path / "cache").exists()


def test_check_of_what_cannot_be_opened_has_problems_and_no_counts(tmp_path: Path) -> None:
    findings = check("cifar10", tmp_path)
    assert len(findings.problems) == 7
    assert findings.counts == {}
    assert findings.shape is None


@pytest.mark.parametrize("channels", [1, 3])
def test_the_contact_sheet_shows_the_pixels_of_every_class(tmp_path: Path, channels: int) -> None:
    greys = {f"class {label:02}": 15 + 10 * label for label in range(12)}
    for name, grey in greys.items():
        for k in range(2):
            shape = (10, 20) if channels == 1 else (10, 20, 3)
            write_image(tmp_path / "root" / name / f"{k}.png", np.full(shape, grey, np.uint8))
    out = draw_contact_sheet(
        "folder", tmp_path / "root", out=tmp_path / "new" / "sheet.png", options=ReadOptions(test_share=0.5)
    )
    with Image.open(out) as sheet:
        pixels = np.asarray(sheet.convert("RGB"))
    areas = {grey: int((pixels == grey).all(-1).sum()) for grey in greys.values()}
    shown = [grey for grey, area in areas.items() if area > 4000]  # 50x100 pixels, less the smoothing at its edge
    assert len(shown) == 10
    assert {min(greys.values()), max(greys.values())} <= set(shown)


def test_the_contact_sheet_of_a_damaged_set_names_the_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for k in range(2):
            write_image(tmp_path / "root" / name / f"{k}.png", noise(k, 8, 8))
    for k in range(2):
        (tmp_path / "root" / "b" / f"{k}.png").write_text("no image")
    with pytest.raises(DataError, match=r"b/.\.png: is no image"):
        draw_contact_sheet("folder", tmp_path / "root", out=tmp_path / "sheet.png")
