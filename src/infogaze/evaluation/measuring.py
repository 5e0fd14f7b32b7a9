"""Which measurements there are, by name, and which of them mean something for a method."""

from __future__ import annotations

from collections.abc import Iterable

from infogaze.evaluation.records import Disturbed, Judged, Latents, ManyLooks, Measurement, Records, Samples, Showcase
from infogaze.methods.registry import method

KINDS: dict[str, type[Measurement]] = {
    kind.file: kind for kind in (Records, Judged, Showcase, Latents, ManyLooks, Samples, Disturbed)
}


def kinds_for(name: str, wanted: Iterable[str]) -> set[type[Measurement]]:
    """The kinds wanted that apply to a method; the records always do."""
    kinds: set[type[Measurement]] = {Records, *(KINDS[kind] for kind in wanted)}
    if method(name).sees == "everything":
        return {Records}
    return kinds if method(name).imagines else kinds - {Latents, Samples}
