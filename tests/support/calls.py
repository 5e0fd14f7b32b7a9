"""Calls of the command line that are refused, and what is said of them."""

from __future__ import annotations

import re

import pytest

from infogaze.cli.main import main


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line that a call gets which the user can mend, with exit code 2 and nothing on standard output."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    assert stop.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith("infogaze: ")
    return line


def refused_by_parser(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What the parser says of a call that it cannot read, in one line; with exit code 2 and nothing on standard output."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    assert stop.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "Traceback" not in said.err
    return one_line(said.err)


def one_line(text: str) -> str:
    """Without boxes, colours and breaks."""
    plain = re.sub(r"\x1b\[[\d;]*m", "", text)
    return " ".join(re.sub(r"[─│╭╮╰╯+]|^ *\| | \| *$|-{3,}", " ", plain, flags=re.MULTILINE).split())
