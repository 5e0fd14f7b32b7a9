from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from infogaze.errors import InfogazeError
from infogaze.files import create_whole, locked, make_folder, read_json, read_whole, write_whole

HOLD = """
import sys, time
from pathlib import Path
from infogaze.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_locked_folder_is_refused_with_the_process_that_has_it_until_that_dies(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(InfogazeError, match=f"{tmp_path}.* process {other.pid} "), locked(tmp_path):
            pass
        other.send_signal(signal.SIGKILL)
        other.wait()
        with locked(tmp_path):
            pass


def test_a_lock_is_free_again_after_its_block(tmp_path: Path) -> None:
    for _ in range(2):
        with locked(tmp_path):
            pass
    with pytest.raises(InfogazeError), locked(tmp_path), locked(tmp_path):
        pass


def test_what_cannot_be_read_or_written_is_one_line_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("{")
    for call, path in (
        (lambda: read_whole(tmp_path / "none"), "none"),
        (lambda: read_whole(tmp_path), str(tmp_path)),
        (lambda: make_folder(tmp_path / "file" / "below"), "below"),
        (lambda: write_whole(tmp_path / "none" / "x", b""), "x"),
        (lambda: read_json(tmp_path / "file"), "file"),
    ):
        with pytest.raises(InfogazeError, match=path) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_a_full_disk_is_called_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InfogazeError, match="page: .*disk is full"):
        write_whole(tmp_path / "page", b"x")


CREATE = """
import sys
from pathlib import Path
from infogaze.files import create_whole
name = sys.argv[2]
sys.stdin.readline()
print(create_whole(Path(sys.argv[1]), (name * 100_000).encode()))
"""


def test_of_many_processes_that_create_a_file_one_succeeds_and_its_data_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "claim"
    others = [
        subprocess.Popen(
            [sys.executable, "-c", CREATE, str(path), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in "abc"
    ]
    said = [other.communicate("go\n")[0].strip() for other in others]
    assert sorted(said) == ["False", "False", "True"]
    assert path.read_text() == "abc"[said.index("True")] * 100_000
    assert list(tmp_path.iterdir()) == [path], "nothing else is left"


def test_a_file_is_created_once_on_a_system_without_hard_links_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    assert create_whole(tmp_path / "claim", b"one")
    assert not create_whole(tmp_path / "claim", b"two")
    assert (tmp_path / "claim").read_bytes() == b"one"
    assert [path.name for path in tmp_path.iterdir()] == ["claim"]
    with pytest.raises(InfogazeError, match="cannot be written: No such file or directory"):
        create_whole(tmp_path / "none" / "claim", b"")
