"""Lint and types are tests like the others, so that one command passes them all."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

TOOLS = {
    "lint": ["ruff", "check", "."],
    "format": ["ruff", "format", "--check", "."],
    "types": ["mypy"],
}


@pytest.mark.parametrize("tool", TOOLS)
def test_the_tree_is_clean(tool: str) -> None:
    done = subprocess.run([sys.executable, "-m", *TOOLS[tool]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_version_is_the_same_everywhere() -> None:
    import infogaze

    for name in ("pyproject.toml", "CITATION.cff"):
        found = re.search(r"^version\s*[:=]\s*\"?([\d.]+)", (ROOT / name).read_text(), re.MULTILINE)
        assert found is not None
        assert found[1] == infogaze.__version__, name
