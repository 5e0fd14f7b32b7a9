from __future__ import annotations

import torch

from infogaze.plots.scenes import fitted, short, shown_looks


def test_a_row_of_many_looks_keeps_the_first_and_the_last() -> None:
    assert shown_looks(7) == list(range(7))
    assert shown_looks(1) == [0]
    many = shown_looks(49)
    assert (many[0], many[-1], len(many)) == (0, 48, 8)
    assert torch.tensor(many).diff().amin() >= 6


def test_a_long_name_is_cut_to_the_room_there_is() -> None:
    assert short("automobile") == "automobile"
    assert short("a very long name") == "a very long …"


def test_a_name_is_cut_by_its_width_not_by_its_letters() -> None:
    assert fitted("automobile", 60, 8) == "automobile"
    assert fitted("i" * 20, 60, 8) == "i" * 20
    assert fitted("W" * 20, 60, 8) == "WWWWWW…"
    assert fitted("W" * 20, 60, 16) == "WW…"
    assert fitted("W" * 20, 1, 8) == "…", "something is left always"
    assert fitted("", 60, 8) == ""
