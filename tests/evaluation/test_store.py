from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from infogaze.evaluation import store
from infogaze.evaluation.coherence import Coherence
from infogaze.evaluation.corrupted import Corrupted
from infogaze.evaluation.early_stopping import EarlyStopping
from infogaze.evaluation.exact_pass import Records
from infogaze.evaluation.imagined import ImaginedScenes
from infogaze.evaluation.judged import Judged
from infogaze.evaluation.latents import Latents
from infogaze.evaluation.many_looks import ManyLooks
from infogaze.evaluation.registry import MEASUREMENTS, measurement_of
from infogaze.evaluation.sample_counts import SampleCounts
from infogaze.evaluation.showcase import Showcase
from infogaze.evaluation.store import FORMAT, About, EvaluationError, Record
from infogaze.evaluation.travelled import Travelled
from infogaze.grid import GlimpseGrid

ABOUT = About(
    method="infogaze", preset="small", seed=3, data="shapes", test="d1ge57", scenes=5, classes=("ring", "bar"), num_looks=4,
    num_samples=20, grid=GlimpseGrid(height=16, width=20, glimpse_size=8, stride=4), deployable=True, whole=False, first_looks=0,
    device="CPU", versions={"torch": "2.11.0"}, weights="we19h75", flip_tta=False, recipe="c0ffee", val_fraction=0.1, fit="pad",
)  # fmt: skip

_random = torch.Generator().manual_seed(0)


def whole(*shape: int, below: int = 2) -> Tensor:
    return torch.randint(0, below, shape, generator=_random)


def floats(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=_random)


def pixels(*shape: int) -> Tensor:
    return whole(*shape, below=256).to(torch.uint8)


# Whole numbers too large for half precision, and for 16 bits, are among them.
MADE: tuple[Record, ...] = (
    Records(
        labels=whole(5), locations=whole(5, 4, 2, below=70_000), predictions=whole(5, 4), log_probabilities=floats(5, 4, 2),
        expected=floats(5, 4),
    ),
    ManyLooks(whole(5), whole(5, 12)),
    SampleCounts(
        num_samples=torch.tensor([1, 20]), labels=whole(3), predictions=whole(2, 3, 4), log_probabilities=floats(2, 3, 4, 2),
        expected=floats(2, 3, 4), seconds=torch.tensor([0.5, 7.0]),
    ),
    Corrupted(whole(3), floats(2, 4), whole(2, 4, 3, 4)),
    Judged(whole(5, 4), pixels(32)),
    Showcase(
        scenes=torch.tensor([0, 90_001]), common=torch.tensor(1), images=pixels(2, 1, 16, 20), labels=whole(2),
        locations=whole(2, 4, 2), gains=floats(2, 4, 3, 4), probabilities=floats(2, 4, 2), class_means=pixels(2, 1, 16, 20),
    ),
    ImaginedScenes(scenes=whole(2), pictures=pixels(2, 4, 1, 16, 20), uncertainty=floats(2, 4, 3, 4)),
    Latents(torch.tensor(0), whole(4, 2), floats(4, 6, 3)),
    Coherence(mutual_information=floats(3, 3), incoherence=floats(3, 3)),
    EarlyStopping(
        curve_looks=floats(3, 5), curve_correct=whole(3, 5, below=70_000), looks=floats(3, 2, 4), accuracy=floats(3, 2, 4),
        full=floats(3, 2, 4), broken=pixels(3, 2, 4), broken_on_half=pixels(3, 2, 4),
    ),
    Travelled(labels=whole(5), seconds=floats(4), predictions=whole(3, 5, 4), looks=whole(3, 5), clock=floats(3)),
)  # fmt: skip
RECORDS = MADE[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store.begin(tmp_path / "evaluation", ABOUT)
    return tmp_path / "evaluation"


def refused(work: Callable[[], object]) -> str:
    """What is said of an evaluation that cannot be read: one line."""
    with pytest.raises(EvaluationError) as refusal:
        work()
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_there_is_a_case_for_every_kind() -> None:
    assert {type(made) for made in MADE} == {entry.record for entry in MEASUREMENTS.values()}
    for made in MADE:
        assert measurement_of(type(made)).name == made.file


@pytest.mark.parametrize("made", MADE, ids=lambda made: made.file)
def test_whole_numbers_read_back_exactly_and_floats_to_half_precision(made: Record, folder: Path) -> None:
    assert not store.has(folder, type(made))
    store.write(folder, made)
    assert store.has(folder, type(made))
    read = store.read(folder, type(made))
    for field in fields(made):
        written, found = getattr(made, field.name), getattr(read, field.name)
        assert found.dtype == written.dtype, "float32, int64 and uint8, as they were"
        assert torch.equal(found, written.half().float() if written.is_floating_point() else written), field.name


@pytest.mark.parametrize("made", MADE, ids=lambda made: made.file)
def test_nothing_on_disk_takes_more_than_it_must(made: Record, folder: Path) -> None:
    store.write(folder, made)
    kinds = {value.dtype for value in load_file(folder / f"{made.file}.safetensors").values()}
    assert kinds <= {torch.float16, torch.int32, torch.uint8}


def test_the_prediction_is_kept_where_half_precision_cannot_tell_the_two_likeliest_apart(folder: Path) -> None:
    log_probabilities = torch.tensor([[[0.499999, 0.500001]]]).log()
    made = Records(
        labels=torch.tensor([1]), locations=whole(1, 1, 2), predictions=log_probabilities.argmax(-1),
        log_probabilities=log_probabilities, expected=floats(1, 1),
    )  # fmt: skip
    store.write(folder, made)
    read = store.read(folder, Records)
    assert read.log_probabilities[0, 0, 0] == read.log_probabilities[0, 0, 1]
    assert read.predictions.tolist() == [[1]]
    assert read.correct.tolist() == [[True]]


def test_what_it_says_of_itself_reads_back(folder: Path) -> None:
    assert store.about(folder) == ABOUT


def test_a_measurement_does_not_touch_the_others(folder: Path) -> None:
    for made in MADE:
        store.write(folder, made)
    kept = {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}
    assert len(kept) == len(MADE)
    store.write(folder, Judged(whole(5, 4), pixels(32)))
    for name, data in kept.items():
        if name != "judged.safetensors":
            assert (folder / name).read_bytes() == data
    assert all(store.has(folder, type(made)) for made in MADE)
    assert store.about(folder) == ABOUT


def test_the_same_measurement_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    store.begin(tmp_path / "other", ABOUT)
    for made in MADE:
        store.write(folder, made)
        store.write(tmp_path / "other", made)
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted(["about.json", *(f"{made.file}.safetensors" for made in MADE)])
    for name in names:
        assert (folder / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data[:-1] + bytes([data[-1] ^ 1]), lambda data: b""]
)
def test_a_damaged_file_is_named(damage: Callable[[bytes], bytes], folder: Path) -> None:
    store.write(folder, RECORDS)
    path = folder / "records.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    assert refused(lambda: store.read(folder, Records)).startswith(f"{path}: damaged or truncated")


def test_a_missing_file_is_named_and_counts_as_not_measured(folder: Path) -> None:
    assert refused(lambda: store.read(folder, Records)).startswith(f"{folder / 'records.safetensors'}: missing")
    store.write(folder, RECORDS)
    (folder / "records.safetensors").unlink()
    assert refused(lambda: store.read(folder, Records)).startswith(f"{folder / 'records.safetensors'}: missing")
    assert not store.has(folder, Records)
    store.write(folder, RECORDS)
    assert store.has(folder, Records)


def test_a_folder_without_an_evaluation_is_named(tmp_path: Path) -> None:
    assert not store.has(tmp_path, Records)
    for read in (lambda: store.about(tmp_path), lambda: store.read(tmp_path, Records)):
        assert refused(read) == f"{tmp_path}: no evaluation; `infogaze evaluate` writes one"


def test_a_file_of_another_kind_is_named(folder: Path) -> None:
    store.write(folder, RECORDS)
    store.write(folder, MADE[1])
    stranger = (folder / "many-looks.safetensors").read_bytes()
    for data in (stranger, b"no tensors at all"):
        (folder / "records.safetensors").write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        change(folder, partial(set_digest, digest))
        said = refused(lambda: store.read(folder, Records))
        assert said.startswith(f"{folder / 'records.safetensors'}: not a measurement of this kind")


def set_digest(digest: str, record: dict[str, Any]) -> None:
    record["files"]["records"] = digest


def change(folder: Path, work: Callable[[dict[str, Any]], object]) -> None:
    """Rewrite the description with a digest that fits."""
    record = json.loads((folder / "about.json").read_text())
    work(record)
    record.pop("digest", None)
    store._write_index(folder, record)


@pytest.mark.parametrize(
    "edit", [lambda text: text.replace('"seed": 3', '"seed": 4'), lambda text: text.replace('"records"', '"others"')]
)
def test_a_description_changed_by_another_hand_is_refused(edit: Callable[[str], str], folder: Path) -> None:
    store.write(folder, RECORDS)
    path = folder / "about.json"
    assert edit(path.read_text()) != path.read_text()
    path.write_text(edit(path.read_text()))
    for read in (lambda: store.about(folder), lambda: store.read(folder, Records)):
        assert str(path) in refused(read)
    store.begin(folder, ABOUT)
    assert not store.has(folder, Records), "what it said of the files counts for nothing"


def test_another_format_is_named_with_the_one_that_is_read(folder: Path) -> None:
    store.write(folder, RECORDS)
    change(folder, lambda record: record.update(format=7))
    for read in (lambda: store.about(folder), lambda: store.read(folder, Records)):
        assert refused(read) == f"{folder / 'about.json'}: format 7, and this version reads format {FORMAT}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        "null",
        '{"format": 2}',
        '{"format": 2, "files": {}}',
        '{"format": 2, "files": {}, "about": {}}',
    ],
)
def test_what_is_no_description_is_named(text: str, folder: Path) -> None:
    (folder / "about.json").write_text(text)
    for read in (lambda: store.about(folder), lambda: store.read(folder, Records)):
        assert refused(read) == f"{folder / 'about.json'}: not a description of an evaluation"


@pytest.mark.parametrize(
    "fault",
    [
        lambda about: about.pop("grid"),
        lambda about: about.pop("num_looks"),
        lambda about: about.update(colour="red"),
        lambda about: about["grid"].update(glimpse_size=0),
    ],
)
def test_a_description_that_lacks_or_invents_something_is_named(
    fault: Callable[[dict[str, Any]], object], folder: Path
) -> None:
    change(folder, lambda record: fault(record["about"]))
    said = refused(lambda: store.about(folder))
    assert said.startswith(f"{folder / 'about.json'}: not a valid description of an evaluation")


def test_beginning_the_same_again_keeps_what_was_measured(folder: Path) -> None:
    store.write(folder, RECORDS)
    before = (folder / "about.json").read_bytes()
    store.begin(folder, replace(ABOUT, classes=tuple(ABOUT.classes)))
    assert (folder / "about.json").read_bytes() == before
    assert store.has(folder, Records)


@pytest.mark.parametrize(
    "other",
    [
        {"weights": "0ther"}, {"test": "0ther"}, {"first_looks": 1}, {"seed": 4}, {"num_looks": 3}, {"num_samples": 5},
        {"grid": GlimpseGrid(height=16, width=20, glimpse_size=8, stride=2)}, {"classes": ("ring", "dot")}, {"device": "H200"},
        {"versions": {"torch": "3"}}, {"flip_tta": True}, {"recipe": "0ther"}, {"val_fraction": 0.2}, {"fit": ""},
    ],
    ids=lambda other: next(iter(other)),
)  # fmt: skip
def test_beginning_something_else_forgets_what_was_measured(other: dict[str, Any], folder: Path) -> None:
    store.write(folder, RECORDS)
    store.begin(folder, replace(ABOUT, **other))
    assert not store.has(folder, Records)
    assert store.about(folder) == replace(ABOUT, **other)
    refused(lambda: store.read(folder, Records))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 7}'])
def test_beginning_over_a_description_that_cannot_be_read_begins_anew(text: str, folder: Path) -> None:
    store.write(folder, RECORDS)
    (folder / "about.json").write_text(text)
    store.begin(folder, ABOUT)
    assert store.about(folder) == ABOUT
    assert not store.has(folder, Records)


def test_a_kill_between_a_file_and_its_entry_only_means_that_it_is_measured_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write(folder, MADE[1])

    class Killed(BaseException):
        pass

    def killed(path: Path, value: object) -> None:
        assert path.name == "about.json"
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(store, "write_json", killed)
        with pytest.raises(Killed):
            store.write(folder, RECORDS)
    assert (folder / "records.safetensors").exists()
    assert not store.has(folder, Records)
    assert store.has(folder, type(MADE[1])), "what was measured before stands"
    store.begin(folder, ABOUT)
    store.write(folder, RECORDS)
    assert store.has(folder, Records)
    store.read(folder, Records)


def test_a_measurement_from_another_source_is_not_the_one_asked_for(folder: Path) -> None:
    store.write(folder, MADE[4], source="one judge")
    assert store.has(folder, Judged)
    assert store.has(folder, Judged, "one judge")
    assert not store.has(folder, Judged, "another judge")
    store.write(folder, RECORDS)
    assert store.has(folder, Records, "")
    assert store.has(folder, Judged, "one judge"), "which the next file leaves as it was"
