"""Adapters know nothing of each other, and one whose library is missing says so in one line."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import infogaze.adapters
from tests.test_rooms import imported

FOLDER = Path(infogaze.adapters.__path__[0])
FILES = sorted(path for path in FOLDER.glob("*.py") if path.name != "__init__.py")
LIBRARIES = {"bluesky": ("bluesky", "bluesky_adaptive", "event_model"), "micromanager": ("pymmcore_plus", "useq")}
"""What each needs, of which any may be missing."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_adapter_imports_nothing_of_the_others(path: Path) -> None:
    assert "adapters" not in imported(path)


def test_the_room_itself_holds_a_line_and_nothing_else() -> None:
    (only,) = ast.parse((FOLDER / "__init__.py").read_text()).body
    assert isinstance(only, ast.Expr)


@pytest.mark.parametrize(("adapter", "library"), [(name, one) for name, all_ in LIBRARIES.items() for one in all_])
def test_a_missing_extra_is_one_line(adapter: str, library: str) -> None:
    program = f"import sys; sys.modules[{library!r}] = None; import infogaze.adapters.{adapter}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    said = done.stderr.strip().splitlines()[-1]
    assert said.startswith(f"infogaze.errors.InfogazeError: infogaze.adapters.{adapter} needs the extra '{adapter}' (")
    assert said.endswith(f": pip install 'infogaze[{adapter}]'")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_adapter_leaves_the_programs_logging_as_it_was(path: Path) -> None:
    program = f"""
import logging
before = logging.root.level, list(logging.root.handlers)
import infogaze.adapters.{path.stem}
assert (logging.root.level, logging.root.handlers) == before, (logging.root.level, logging.root.handlers)
"""
    environment = {**os.environ, "PYTEST_RUNNING": "1"}  # or pymmcore-plus keeps a log in the user's own folder
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
