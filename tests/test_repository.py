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


def test_the_five_lines_of_the_readme_run() -> None:
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    names: dict[str, object] = {}
    exec(block[1], names)
    assert "episode" in names


def test_the_readme_links_to_files_that_are_there() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_version_is_the_same_everywhere() -> None:
    import infogaze

    for name in ("pyproject.toml", "CITATION.cff"):
        found = re.search(r"^version\s*[:=]\s*\"?([\d.]+)", (ROOT / name).read_text(), re.MULTILINE)
        assert found is not None
        assert found[1] == infogaze.__version__, name
