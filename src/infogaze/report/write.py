"""A report on disk: the page, and each figure as PNG, SVG and CSV beside it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from infogaze.evaluation.comparing import describe_recipe
from infogaze.evaluation.estimates import accuracy_over_runs
from infogaze.files import make_folder, write_whole
from infogaze.methods.registry import METHODS
from infogaze.plots.style import inline, png, svg
from infogaze.report.contents import ENTRIES, Entry
from infogaze.report.drawing import Cell, Drawing, Missing, Rows, csv_bytes
from infogaze.report.gather import Chapter, Group
from infogaze.report.page import Heading, Part, Picture, Plate, book
from infogaze.report.words import join_names, looks_phrase, percent_phrase, reported_looks

_DPI = 130
_KINDS = ("png", "svg", "csv")


def write_report(out: Path, chapters: tuple[Chapter, ...], on_figure: Callable[[], None], *, dpi: int = _DPI) -> None:
    """Draw all that can be drawn; `on_figure` is called after each figure of each chapter. Figures of an older report go."""
    make_folder(out / "figures")
    parts = tuple(_part(out, chapter, on_figure, dpi=dpi) for chapter in chapters)
    runs = [run for chapter in chapters for group in chapter.groups for run in group.runs]
    methods = {group.method for chapter in chapters for group in chapter.groups}
    of_methods = f"{len(methods)} method{'s' if len(methods) > 1 else ''}"
    data = join_names([chapter.data for chapter in chapters])
    opening = (
        "Each scene is seen through a small window, one look at a time, and classified after every look. "
        f"{len(runs)} run{'s' if len(runs) > 1 else ''} of {of_methods} on {data}. Look t counts from 0: after "
        "look t=1 there were two. Each curve is a mean over seeds in a band that is its 95 % interval; with one seed the interval is "
        f"over scenes.{_two_seeds(chapters)} Sentences are computed from the numbers."
    )
    write_whole(
        out / "index.html",
        book(f"How well {of_methods} look{'' if len(methods) > 1 else 's'}: {data}", opening, parts).encode(),
    )


def _part(out: Path, chapter: Chapter, on_figure: Callable[[], None], *, dpi: int) -> Part:
    headings = []
    missing: list[tuple[str, ...]] = [("figure", "why", "what would produce it")]
    for entry in ENTRIES:
        drawn = entry.draw(chapter)
        stem = _stem(chapter, entry)
        written: set[str] = set()
        if isinstance(drawn, Missing):
            missing.append((entry.title, drawn.why, drawn.remedy))
        else:
            plates = []
            for index, drawing in enumerate(drawn, start=1):
                name = stem if len(drawn) == 1 else f"{stem}-{index}"
                written.add(name)
                plates.append(_plate(out, name, drawing, dpi=dpi))
            headings.append(Heading(title=entry.title, anchor=stem, paper=entry.paper, plates=tuple(plates)))
        _remove_older(out / "figures", stem, written)
        on_figure()
    return Part(
        title=chapter.data,
        opening=_opening(chapter),
        methods=_methods(chapter),
        headings=tuple(headings),
        missing=tuple(missing),
        provenance=_provenance(chapter),
    )


def _stem(chapter: Chapter, entry: Entry) -> str:
    data = re.sub(r"[^\w.-]+", "-", chapter.data)
    return f"{data}-{entry.number:02d}-{entry.name}"


def _plate(out: Path, name: str, drawing: Drawing, *, dpi: int) -> Plate:
    image = png(drawing.figure, dpi)
    # The layout is settled by the first drawing; to solve it once more would take as long again.
    drawing.figure.set_layout_engine("none")
    files = zip(_KINDS, (image, svg(drawing.figure), csv_bytes(drawing.numbers)), strict=True)
    for kind, data in files:
        write_whole(out / "figures" / f"{name}.{kind}", data)
    return Plate(
        sentence=drawing.sentence,
        picture=Picture(inline(image), drawing.alt_text),
        note=drawing.note,
        table=drawing.table,
        files=f"figures/{name}",
    )


def _remove_older(figures: Path, stem: str, written: set[str]) -> None:
    """A figure that an older report left here and this one has no data for would pass for one of this."""
    for kind in _KINDS:
        for path in figures.glob(f"{stem}*.{kind}"):
            if re.fullmatch(rf"{re.escape(stem)}(-\d+)?", path.stem) and path.stem not in written:
                path.unlink()


def _opening(chapter: Chapter) -> str:
    grid = chapter.grid
    most = min(100.0, 100 * chapter.num_looks * grid.glimpse_size**2 / (grid.height * grid.width))
    return (
        f"{chapter.about.scenes} test scenes of {grid.height}x{grid.width} pixels in {len(chapter.classes)} classes; {chapter.num_looks} "
        f"looks of {grid.glimpse_size}x{grid.glimpse_size} pixels show at most {most:.4g} % of the area. The first looks are the same for "
        f"all methods.{_preset(chapter)}{_brought_to_size(chapter)}{_flip_tta(chapter)}"
    )


def _methods(chapter: Chapter) -> Rows:
    """What each method is in a line, and its accuracy at the reported looks."""
    looks = reported_looks(chapter.num_looks)
    rows: list[tuple[Cell, ...]] = [
        ("method", "what it is", *(f"accuracy after {looks_phrase(look)}" for look in looks), "seeds")
    ]
    for group in chapter.groups:
        what = METHODS[group.method].summary if group.method in METHODS else "not one of the package"
        rows.append((group.name, what, *_reached(group, looks), len(group.runs)))
    return tuple(rows)


def _reached(group: Group, looks: tuple[int, ...]) -> tuple[str, ...]:
    accuracy = accuracy_over_runs([run.summary.correct for run in group.runs])
    if group.runs[0].about.whole:  # it has one look, at everything
        return (*[""] * (len(looks) - 1), percent_phrase(accuracy, -1))
    return tuple(percent_phrase(accuracy, look) for look in looks)


def _two_seeds(chapters: tuple[Chapter, ...]) -> str:
    """Why intervals of two seeds are so unlike each other, in a sentence; empty where no method has two."""
    if all(len(group.runs) != 2 for chapter in chapters for group in chapter.groups):
        return ""
    return (
        " Two seeds say little of their spread: Student's interval is then 12.7 standard errors to either side, narrow where the two "
        "happen to agree and very wide where they do not. Give a third seed before you trust it."
    )


def _preset(chapter: Chapter) -> str:
    """Whose networks they are, in a sentence; empty where there are several presets, which names then tell apart."""
    presets = {group.preset for group in chapter.groups}
    return f" Networks are those of the preset {presets.pop()}." if len(presets) == 1 else ""


_FITS = {
    "resize": "stretched to this size with Lanczos",
    "crop": "scaled with Lanczos and cut to this size",
    "pad": "scaled with Lanczos and given black bars to this size",
}


def _brought_to_size(chapter: Chapter) -> str:
    """What was done to images of another size, in a sentence; empty where there were none."""
    done = _FITS.get(chapter.about.fit)
    return f" Where the set's images have another size, they were {done}." if done else ""


def _flip_tta(chapter: Chapter) -> str:
    """Which methods classify a flipped copy of each look too, in a sentence; empty where none does."""
    names = [group.name for group in chapter.lookers if group.flip_tta]
    if not names:
        return ""
    if len(names) == len(chapter.lookers):
        return " All methods use horizontal-flip test-time augmentation (flip TTA)."
    verb = "uses" if len(names) == 1 else "use"
    return f" {join_names(names)} {verb} horizontal-flip test-time augmentation; the others do not."


def _provenance(chapter: Chapter) -> Rows:
    """A row a run, and one of what all have in common."""
    head = (
        "method", "preset", "seed", "recipe", "validation split", "scenes", "looks", "P", "flip TTA", "device", "versions",
        "weights", "run",
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = [head]
    for group in chapter.groups:
        for run in group.runs:
            about = run.about
            versions = ", ".join(f"{name} {version}" for name, version in about.versions.items())
            rows.append(
                (
                    about.method, about.preset, about.seed, describe_recipe(about), f"{100 * about.val_fraction:g} %", about.scenes,
                    about.num_looks, about.num_samples or "", "yes" if about.flip_tta else "no", about.device, versions,
                    about.weights[:12], str(run.folder),
                )
            )  # fmt: skip
    common = f"test set {chapter.about.test}, first looks by seed {chapter.about.first_looks}"
    rows.append(tuple({"method": "all", "versions": common}.get(column, "") for column in head))
    return tuple(rows)
