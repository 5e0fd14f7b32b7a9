"""The examples of adapters run as they stand, and the oldest versions that `.ci/adapters` runs them with are those of pyproject.toml."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from PIL import Image

from tests.support.paths import ROOT

PROGRAMS = ("bluesky_scan.py", "gym_digits.py", "hub_digits.py", "micromanager_scan.py")
"""Those of adapters, which `.ci/adapters` runs too. The others need arguments, and have tests beside what they are examples of."""
DRAWN = {"bluesky_scan.py": "bluesky.png", "hub_digits.py": "hub.png", "micromanager_scan.py": "micromanager.png"}
"""The pictures of finished scans, in docs/adapters/."""


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_an_example_runs_as_it_stands(program: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / program)]
    environment = {**os.environ, "PYTEST_RUNNING": "1"}  # or pymmcore-plus keeps a log in the user's own folder
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    if program in DRAWN:
        with (
            Image.open(tmp_path / Path(program).with_suffix(".png")) as new,
            Image.open(ROOT / "docs" / "adapters" / DRAWN[program]) as old,
        ):
            assert new.size == old.size, "the page shows what the example draws"
        assert re.search(r"^label \d, probability 0\.\d\d, after \d looks$", done.stdout, re.MULTILINE)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_oldest_versions_are_those_that_are_stated() -> None:
    oldest = dict(line.split("==") for line in (ROOT / "constraints-oldest.txt").read_text().splitlines())
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    stated = dict(
        re.split(r">=", requirement)
        for name in ("bluesky", "gym", "hub", "micromanager")
        for requirement in extras[name]
    )
    found = {canonical(name): version for name, version in oldest.items()}
    assert {canonical(name): version for name, version in stated.items()}.items() <= found.items()
