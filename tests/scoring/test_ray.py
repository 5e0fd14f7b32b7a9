"""The example on a local Ray, with the real library."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from infogaze import Scorer
from tests.support.paths import ROOT
from tests.support.scoring import saved_model, write_pictures

EXAMPLE = ROOT / "examples" / "ray_score.py"


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder for all that Ray writes; its sockets need a short path."""
    folder = Path(tempfile.mkdtemp(prefix="ray"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def processes_of(home: Path) -> list[int]:
    """Those whose command line speaks of the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and str(home).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up as Linux shows them")
def test_map_batches_takes_a_scorer_as_it_is_and_the_rows_are_those_without_ray(tmp_path: Path, home: Path) -> None:
    folder, model, out = write_pictures(tmp_path / "pictures", 6), saved_model(tmp_path / "model"), tmp_path / "out"
    (folder / "000.png").write_text("broken")
    env = {**os.environ, "HOME": str(home), "RAY_TMPDIR": str(home), "RAY_USAGE_STATS_ENABLED": "0"}
    call = [sys.executable, str(EXAMPLE), str(folder), str(out), "--model", str(model), "--num-cpus", "1"]
    done = subprocess.run([*call, "--batch-size", "4"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"6 pictures, their rows in {out}" in done.stdout
    rows = {row["id"]: row for path in out.glob("*.parquet") for row in pq.ParquetFile(path).read().to_pylist()}
    ids = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.png"))
    assert sorted(rows) == ids
    columns = {"image": np.array([str(folder / name) for name in ids]), "id": np.array(ids)}
    expected = Scorer(model=str(model))(columns)
    for place, name in enumerate(ids):
        assert rows[name]["prediction"] == expected["prediction"][place]
        np.testing.assert_allclose(
            np.ravel(rows[name]["probabilities"]), expected["probabilities"][place], rtol=1e-3, atol=1e-5
        )
        np.testing.assert_array_equal(np.reshape(rows[name]["locations"], (-1, 2)), expected["locations"][place])
        assert rows[name]["problem"] == expected["problem"][place]
    assert rows["000.png"]["problem"] == "is no image that Pillow can read"
    until = time.monotonic() + 60
    while processes_of(home) and time.monotonic() < until:
        time.sleep(0.1)
    assert processes_of(home) == [], "none of Ray's processes is left"
