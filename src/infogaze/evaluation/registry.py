"""All measurements by name, in the order in which they are made."""

from __future__ import annotations

from collections.abc import Iterable

from infogaze.evaluation import (
    coherence,
    corrupted,
    early_stopping,
    exact_pass,
    imagined,
    judged,
    latents,
    many_looks,
    sample_counts,
    showcase,
    travelled,
)
from infogaze.evaluation.measurement import Measurement
from infogaze.evaluation.store import Record
from infogaze.methods.method import Method

_ALL = (
    exact_pass,
    judged,
    showcase,
    imagined,
    latents,
    many_looks,
    sample_counts,
    coherence,
    corrupted,
    early_stopping,
    travelled,
)

MEASUREMENTS: dict[str, Measurement] = {module.MEASUREMENT.name: module.MEASUREMENT for module in _ALL}
"""The exact pass first: others are made from it."""


def measurements_for(method: Method, wanted: Iterable[str]) -> list[Measurement]:
    """Those wanted that mean something for a method, in order; the exact pass always is."""
    names = {exact_pass.MEASUREMENT.name, *wanted}
    return [entry for name, entry in MEASUREMENTS.items() if name in names and entry.applies(method)]


def measurement_of(record: type[Record]) -> Measurement:
    """The entry that leaves this record."""
    return MEASUREMENTS[record.file]
