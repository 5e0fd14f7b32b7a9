from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from infogaze.data import cache, reading
from infogaze.data.cache import cache_root
from infogaze.data.options import AS_IT_IS, ReadOptions
from infogaze.data.reading import in_memory
from infogaze.data.registry import load_set, read_set
from infogaze.data.sets import ImageSet, Split
from infogaze.errors import DataError
from infogaze.pictures import Form, read_picture
from tests.support.sets import noise, write_image


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    for part in ("train", "test"):
        for label in ("a", "b"):
            for k in range(3):
                write_image(root / part / label / f"{k}.png", noise(k, 6, 6, 3))
    return root


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are decoded from now on."""
    paths: list[Path] = []

    def spy(path: Path, form: Form) -> np.ndarray:
        paths.append(path)
        return read_picture(path, form)

    monkeypatch.setattr(reading, "read_picture", spy)
    return paths


def load(source: Path, options: ReadOptions = AS_IT_IS) -> ImageSet:
    return load_set("folder", source, options, cache=source.parent / "cache")


def same(one: ImageSet, other: ImageSet) -> bool:
    pairs = [(one.train, other.train), (one.test, other.test)]
    equal = all(torch.equal(a.images, b.images) and torch.equal(a.labels, b.labels) for a, b in pairs)
    return equal and one.classes == other.classes


def the_cache(source: Path) -> Path:
    [place] = (source.parent / "cache").iterdir()
    return place


def test_a_set_is_read_once_and_comes_back_the_same(source: Path, decoded: list[Path]) -> None:
    first = load(source)
    assert len(decoded) == 12
    assert same(load(source), first)
    assert len(decoded) == 12
    assert np.array_equal(first.test.images[4].numpy(), noise(1, 6, 6, 3).transpose(2, 0, 1))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists a process's mappings")
def test_images_are_mapped_not_loaded(source: Path) -> None:
    images = load(source).train.images
    file = str(the_cache(source) / "train_images.npy")
    [line] = [line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(file)]
    start, stop = (int(bound, 16) for bound in line.split()[0].split("-"))
    assert start <= images.data_ptr() < stop
    assert line.split()[1].startswith("r--")


def notes(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the cache has said, whatever other libraries say."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("infogaze.")]


def flip_a_byte(place: Path) -> None:
    content = bytearray(place.read_bytes())
    content[-1] ^= 1
    place.write_bytes(content)


def cut(place: Path) -> None:
    place.write_bytes(place.read_bytes()[:-7])


FILES = ("train_images.npy", "train_labels.npy", "test_images.npy", "test_labels.npy", "set.json")


@pytest.mark.parametrize("damage", [flip_a_byte, cut, Path.unlink])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_cache_is_noticed_and_rebuilt_with_a_note(
    source: Path, decoded: list[Path], caplog: pytest.LogCaptureFixture, name: str, damage: Callable[[Path], None]
) -> None:
    first = load(source)
    train, test = (Split(split.images.clone(), split.labels) for split in (first.train, first.test))
    kept = ImageSet(train, test, first.classes)
    del first, train, test
    if name == "set.json" and damage is flip_a_byte:
        (the_cache(source) / name).write_text('{"fingerprint": []')
    else:
        damage(the_cache(source) / name)
    with caplog.at_level(logging.WARNING):
        again = load(source)
    assert same(again, kept)
    assert len(decoded) == 24
    [note] = notes(caplog)
    assert note.startswith(str(the_cache(source)))
    assert "damaged" in note
    assert note.endswith("reading the set again")


def test_a_changed_source_is_read_again(source: Path, decoded: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    load(source)
    write_image(source / "train" / "a" / "0.png", noise(77, 6, 6, 3))
    changed = load(source)
    assert np.array_equal(changed.train.images[0].numpy(), noise(77, 6, 6, 3).transpose(2, 0, 1))
    write_image(source / "test" / "b" / "new.png", noise(78, 6, 6, 3))
    assert len(load(source).test) == 7
    (source / "test" / "b" / "new.png").unlink()
    assert len(load(source).test) == 6
    assert [message.split("; ")[0].split(": ")[1] for message in notes(caplog)] == ["the source has changed"] * 3
    the_cache(source)


def test_a_file_of_the_same_size_but_another_time_counts_as_changed(source: Path, decoded: list[Path]) -> None:
    load(source)
    file = source / "train" / "a" / "0.png"
    os.utime(file, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns + 1_000_000))
    load(source)
    assert len(decoded) == 24


def test_a_root_may_be_typed_in_any_way(
    source: Path, decoded: list[Path], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load(source)
    monkeypatch.chdir(source)
    (source.parent / "link").symlink_to(source)
    for root in (".", "../source", "../link", f"{source}/../source", str(source)):
        assert same(load_set("folder", root, cache=source.parent / "cache"), first)
    assert len(decoded) == 12
    assert not notes(caplog)
    the_cache(source)


def test_a_file_that_moved_within_the_root_counts_as_changed(source: Path, decoded: list[Path]) -> None:
    load(source)
    (source / "train" / "a" / "0.png").rename(source / "train" / "b" / "moved.png")
    assert load(source).train.labels.tolist() == [0, 0, 1, 1, 1, 1]
    assert len(decoded) == 24


def test_what_was_read_in_other_ways_is_kept_apart(source: Path, decoded: list[Path]) -> None:
    assert load(source).train.images.shape == (6, 3, 6, 6)
    assert load(source, ReadOptions(channels=1)).train.images.shape == (6, 1, 6, 6)
    assert load(source, ReadOptions(size=(4, 8))).train.images.shape == (6, 3, 4, 8)
    before = len(decoded)
    load(source)
    load(source, ReadOptions(channels=1))
    assert len(decoded) == before


def test_a_set_with_problems_leaves_no_cache(source: Path) -> None:
    (source / "train" / "a" / "0.png").write_text("no image")
    with pytest.raises(DataError, match=r"0\.png: is no image"):
        load(source)
    assert not list((source.parent / "cache").iterdir())


def test_a_reading_that_breaks_off_leaves_the_old_cache(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(source)
    before = {file: file.read_bytes() for file in the_cache(source).iterdir()}
    write_image(source / "train" / "a" / "0.png", noise(77, 6, 6, 3))

    def interrupt(path: Path, form: object) -> np.ndarray:
        raise KeyboardInterrupt

    monkeypatch.setattr(reading, "read_picture", interrupt)
    with pytest.raises(KeyboardInterrupt):
        load(source)
    assert {file: file.read_bytes() for file in the_cache(source).iterdir()} == before


def test_a_set_stays_usable_while_its_cache_is_replaced(source: Path) -> None:
    first = load(source)
    kept = first.train.images.clone()
    write_image(source / "train" / "a" / "0.png", noise(77, 6, 6, 3))
    assert not same(load(source), first)
    assert torch.equal(first.train.images, kept)


def test_what_a_killed_process_left_goes_after_a_day(source: Path) -> None:
    left = source.parent / "cache" / "folder-0123.partial-abc"
    fresh = source.parent / "cache" / "folder-0123.partial-def"
    left.mkdir(parents=True)
    fresh.mkdir()
    os.utime(left, (0, 0))
    load(source)
    assert not left.exists()
    assert fresh.exists()


def test_what_another_process_removes_while_its_age_is_asked_does_no_harm(source: Path) -> None:
    gone = source.parent / "cache" / "folder-0123.partial-abc"
    gone.parent.mkdir()
    gone.symlink_to("nowhere")  # is listed, and is not there when it is asked
    assert len(load(source).train) == 6


def test_a_place_that_cannot_be_written_is_one_line(source: Path) -> None:
    (source.parent / "cache").write_text("a file, no folder")
    with pytest.raises(DataError, match="the cache cannot be written: .*; INFOGAZE_CACHE can name another folder"):
        load(source)


def test_a_full_disk_is_one_line_and_leaves_nothing(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(cache, "_write_array", full)
    with pytest.raises(DataError, match="the cache cannot be written: No space left on device; "):
        load(source)
    assert not list((source.parent / "cache").iterdir())


def leave_no_cache(source: Path) -> None:
    pass


def leave_a_stale_cache(source: Path) -> None:
    load(source)
    write_image(source / "train" / "a" / "0.png", noise(77, 6, 6, 3))


def leave_a_damaged_cache(source: Path) -> None:
    load(source)
    flip_a_byte(the_cache(source) / "test_labels.npy")


@pytest.mark.parametrize("leave", [leave_no_cache, leave_a_stale_cache, leave_a_damaged_cache])
def test_a_cache_that_another_process_finished_meanwhile_stays_and_is_opened(
    source: Path, leave: Callable[[Path], None]
) -> None:
    leave(source)
    theirs: list[tuple[ImageSet, int]] = []

    def meanwhile(done: int, total: int) -> None:
        other = load(source)
        [place] = [path for path in (source.parent / "cache").iterdir() if ".partial-" not in path.name]
        theirs.append((other, place.stat().st_ino))

    first = load_set("folder", source, cache=source.parent / "cache", progress=meanwhile)
    assert same(first, in_memory(read_set("folder", source)))
    for other, number in theirs:
        assert same(first, other)
        assert the_cache(source).stat().st_ino == number


def test_a_cache_that_is_taken_away_before_it_can_be_opened_is_built_again(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = cache._publish
    taken: list[Path] = []

    def publish_and_lose(partial: Path, place: Path) -> None:
        publish(partial, place)
        if len(taken) < 2:
            taken.append(place.rename(source.parent / f"taken {len(taken)}"))

    monkeypatch.setattr(cache, "_publish", publish_and_lose)
    assert same(load(source), in_memory(read_set("folder", source)))
    assert len(taken) == 2
    the_cache(source)


def test_a_cache_that_is_always_taken_away_is_one_line(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_publish", lambda partial, place: None)
    with pytest.raises(DataError, match="the cache was built 3 times and each time lost or damaged at once") as error:
        load(source)
    assert "\n" not in str(error.value)


def test_a_cache_that_is_taken_away_while_it_is_opened_is_built_again(
    source: Path, decoded: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, digest = load(source), cache._digest

    def lose_and_digest(path: Path) -> str:
        monkeypatch.setattr(cache, "_digest", digest)
        shutil.rmtree(path.parent)
        return digest(path)

    monkeypatch.setattr(cache, "_digest", lose_and_digest)
    assert same(load(source), first)
    assert len(decoded) == 24
    the_cache(source)


def refuse(place: Path) -> None:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def test_an_older_cache_that_cannot_be_removed_does_no_harm(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_a_stale_cache(source)
    monkeypatch.setattr(cache, "_put_away", refuse)
    assert same(load(source), in_memory(read_set("folder", source)))


def test_a_damaged_cache_that_cannot_be_removed_is_one_line_before_anything_is_read(
    source: Path, decoded: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_a_damaged_cache(source)
    monkeypatch.setattr(cache, "_put_away", refuse)
    with pytest.raises(DataError, match="the cache cannot be written: Operation not permitted; "):
        load(source)
    assert len(decoded) == 12


def test_progress_is_told_up_to_the_last_image(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_STRETCH", 4)
    told: list[tuple[int, int]] = []
    load_set("folder", source, cache=source.parent / "cache", progress=lambda done, total: told.append((done, total)))
    assert told == [(4, 12), (6, 12), (10, 12), (12, 12)]


def test_the_cache_lies_where_it_was_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("INFOGAZE_CACHE", raising=False)
    assert cache_root() == Path("/home/someone/.cache/infogaze")
    monkeypatch.setenv("INFOGAZE_CACHE", "/large/disk")
    assert cache_root() == Path("/large/disk")
    assert cache_root("~/here") == Path("/home/someone/here")


def test_the_record_holds_plain_json(source: Path) -> None:
    load(source)
    record = json.loads((the_cache(source) / "set.json").read_text())
    assert set(record["files"]) == set(FILES) - {"set.json"}
    assert record["classes"] == ["a", "b"]
