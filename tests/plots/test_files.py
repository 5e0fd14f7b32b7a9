from __future__ import annotations

import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from infogaze.errors import InfogazeError
from infogaze.plots.files import ENDINGS, encoded, require_drawable

BEGINS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF", ".jpg": b"\xff\xd8", ".jpeg": b"\xff\xd8"}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_figure_becomes_a_file_of_the_kind_its_ending_names_with_the_same_bytes_each_time(ending: str) -> None:
    figure = Figure(figsize=(1, 1))
    figure.subplots().plot([0, 1])
    data = encoded(figure, ending)
    assert data.startswith(BEGINS[ending])
    assert encoded(figure, ending) == data


def test_a_folder_and_an_ending_that_no_picture_has_are_refused_with_what_is_allowed(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "look.txt", tmp_path / "look"):
        with pytest.raises(InfogazeError, match=re.escape(f"out is {path}")) as refusal:
            require_drawable(path)
        assert all(ending in str(refusal.value) for ending in ENDINGS)
    require_drawable(tmp_path / "look.PNG")
