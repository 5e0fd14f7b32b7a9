"""The cache with real processes that load one set at the same time."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import pytest

from infogaze.data.registry import load_set

PROCESSES = 4
ROUNDS = 30
PATIENCE = 120.0  # seconds until a process gives up on one that has died


def remove_the_cache(source: Path) -> None:
    shutil.rmtree(source.parent / "cache", ignore_errors=True)


def change_the_source(source: Path) -> None:
    os.utime(source, ns=(0, source.stat().st_mtime_ns + 1_000_000))


def damage_the_cache(source: Path) -> None:
    [place] = (source.parent / "cache").iterdir()
    (place / "test_labels.npy").write_bytes(b"damaged")


def load_in_step(source: Path, prepares: bool, gate: Barrier) -> None:
    """Load again and again when all are ready; one of the processes prepares what they meet."""
    wrong = []
    for number in range(ROUNDS):
        for prepare in (remove_the_cache, change_the_source, damage_the_cache):
            if prepares:
                prepare(source)
            gate.wait(PATIENCE)
            try:
                loaded = load_set("arrays", source, cache=source.parent / "cache")
                assert loaded.train.images.flatten().tolist() == list(range(48))
                assert loaded.test.labels.tolist() == [0, 1]
            except Exception as error:
                wrong.append(f"round {number}, {prepare.__name__}: {error!r}")
            gate.wait(PATIENCE)
    assert not wrong, wrong


@pytest.mark.slow
def test_processes_that_start_together_all_load_the_set_and_leave_one_cache(tmp_path: Path) -> None:
    source, labels = tmp_path / "set.npz", np.array([0, 1])
    images = np.arange(48, dtype=np.uint8).reshape(2, 1, 4, 6)
    np.savez(source, train_x=images, train_y=labels, test_x=images, test_y=labels)
    context = multiprocessing.get_context("spawn")
    gate = context.Barrier(PROCESSES)
    processes = [context.Process(target=load_in_step, args=(source, k == 0, gate)) for k in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    [left] = (tmp_path / "cache").iterdir()
    assert ".partial-" not in left.name
