"""The rooms of the package, and that imports point down only: read off the syntax trees, so that an import inside a function counts too."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SOURCE = ROOT / "src" / "infogaze"
ROOMS = (
    ("errors", "version"),
    ("files", "typed", "rng", "devices", "progress"),
    ("grid", "pictures"),
    ("plots",),
    ("nn",),
    ("gaze", "data", "presets"),
    ("training", "sensors", "model_description"),
    ("methods",),
    ("models", "runs"),
    ("evaluation", "scoring", "export"),
    ("report",),
    ("tasks", "adapters"),
    ("sweep", "page"),
    ("cli",),
)
"""From the bottom up. A room imports from those below it and from itself; rooms of one level know nothing of each other."""
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The rooms that a file imports from, wherever in it."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom):
            names = (
                [f"{node.module}.{name.name}" for name in node.names]
                if node.module == "infogaze"
                else [str(node.module)]
            )
        elif isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("infogaze.")}
    return rooms


def test_every_file_is_in_a_room_of_the_order() -> None:
    assert {room_of(path) for path in FILES} == set(LEVEL)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down_only(path: Path) -> None:
    own = room_of(path)
    for room in imported(path) - {own}:
        assert room in LEVEL, f"{room} is imported through the package itself"
        assert LEVEL[room] < LEVEL[own], f"{own} imports {room}, which is not below it"


@pytest.mark.parametrize("path", [path for path in FILES if room_of(path) == "adapters"], ids=lambda path: path.name)
def test_an_adapter_imports_nothing_of_the_others(path: Path) -> None:
    assert "adapters" not in imported(path)
