from __future__ import annotations

from pathlib import Path

import pytest

from infogaze.report.gather import Chapter, gather
from tests.support.evaluations import sweep


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with run folders below it."""
    return sweep(tmp_path_factory.mktemp("sweep"))


@pytest.fixture(scope="session")
def chapter(runs: Path) -> Chapter:
    (chapter,) = gather([runs])
    return chapter
