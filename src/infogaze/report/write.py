"""A report on disk: the page, and each figure as PNG, SVG and CSV beside it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from infogaze.evaluation.comparing import recipe_said
from infogaze.evaluation.records import About
from infogaze.files import make_folder, write_whole
from infogaze.plots.style import inline, png, svg
from infogaze.report.contents import ENTRIES, Entry
from infogaze.report.drawing import Drawing, Missing, Rows, csv_bytes
from infogaze.report.gather import Chapter
from infogaze.report.page import Heading, Part, Picture, Plate, book
from infogaze.report.words import together

_DPI = 130
_KINDS = ("png", "svg", "csv")


def write_report(out: Path, chapters: tuple[Chapter, ...], notice: Callable[[], None], dpi: int = _DPI) -> None:
    """Draw all that can be drawn; `notice` is called after each figure of each chapter. Figures of an older report go."""
    make_folder(out / "figures")
    parts = tuple(_part(out, chapter, notice, dpi) for chapter in chapters)
    runs = [run for chapter in chapters for group in chapter.groups for run in group.runs]
    methods = {group.method for chapter in chapters for group in chapter.groups}
    opening = (
        f"{len(runs)} run{'s' if len(runs) > 1 else ''} of {len(methods)} method{'s' if len(methods) > 1 else ''} on "
        f"{together([chapter.data for chapter in chapters])}. Look t counts from 0: after look t=1 there were two. Each curve is a "
        "mean over seeds in a band that is its 95 % interval; with one seed the interval is over scenes. Sentences are computed "
        "from the numbers."
    )
    write_whole(out / "index.html", book("What was measured", opening, parts).encode())


def _part(out: Path, chapter: Chapter, notice: Callable[[], None], dpi: int) -> Part:
    headings = []
    missing: list[tuple[str, ...]] = [("figure", "why", "what would produce it")]
    for entry in ENTRIES:
        drawn = entry.draw(chapter)
        stem = _stem(chapter, entry)
        written: set[str] = set()
        if isinstance(drawn, Missing):
            missing.append((_title(entry), drawn.why, drawn.remedy))
        else:
            plates = []
            for index, drawing in enumerate(drawn, start=1):
                name = stem if len(drawn) == 1 else f"{stem}-{index}"
                written.add(name)
                plates.append(_plate(out, name, drawing, dpi))
            headings.append(Heading(_title(entry), stem, tuple(plates)))
        _forget(out / "figures", stem, written)
        notice()
    return Part(chapter.data, _opening(chapter), tuple(headings), tuple(missing), _provenance(chapter))


def _title(entry: Entry) -> str:
    return f"{entry.number}. {entry.title}"


def _stem(chapter: Chapter, entry: Entry) -> str:
    data = re.sub(r"[^\w.-]+", "-", chapter.data)
    return f"{data}-{entry.number:02d}-{entry.name}"


def _plate(out: Path, name: str, drawing: Drawing, dpi: int) -> Plate:
    image = png(drawing.figure, dpi)
    # The layout is settled by the first drawing; to solve it once more would take as long again.
    drawing.figure.set_layout_engine("none")
    files = zip(_KINDS, (image, svg(drawing.figure), csv_bytes(drawing.numbers)), strict=True)
    for kind, data in files:
        write_whole(out / "figures" / f"{name}.{kind}", data)
    picture = Picture(inline(image), drawing.says)
    return Plate(drawing.sentence, picture, drawing.note, drawing.table, f"figures/{name}")


def _forget(figures: Path, stem: str, written: set[str]) -> None:
    """A figure that an older report left here and this one has no data for would pass for one of this."""
    for kind in _KINDS:
        for path in figures.glob(f"{stem}*.{kind}"):
            if re.fullmatch(rf"{re.escape(stem)}(-\d+)?", path.stem) and path.stem not in written:
                path.unlink()


def _opening(chapter: Chapter) -> str:
    grid = chapter.grid
    most = min(100.0, 100 * chapter.looks * grid.glimpse**2 / (grid.height * grid.width))
    return (
        f"{chapter.about.scenes} test scenes of {grid.height}x{grid.width} pixels in {len(chapter.classes)} classes; {chapter.looks} "
        f"looks of {grid.glimpse}x{grid.glimpse} pixels show at most {most:.4g} % of the area. The first looks are the same for "
        f"all methods.{_preset(chapter)}{_brought_to_size(chapter)}{_twins(chapter)}"
    )


def _preset(chapter: Chapter) -> str:
    """Whose networks they are, in a sentence; empty where there are several, which names tell apart."""
    presets = {group.preset for group in chapter.groups}
    return f" Networks are those of the preset {presets.pop()}." if len(presets) == 1 else ""


_FITS = {
    "resize": "stretched to this size with Lanczos",
    "crop": "scaled with Lanczos and cut to this size",
    "pad": "scaled with Lanczos and given black bars to this size",
}


def _brought_to_size(chapter: Chapter) -> str:
    """What was done to images of another size, in a sentence; empty where nothing was, or where it is not known."""
    done = _FITS.get(chapter.about.fit or "")
    return f" Where the set's images have another size, they were {done}." if done else ""


def _twins(chapter: Chapter) -> str:
    """Which methods see more in the same looks than the others, in a sentence; empty where there are none."""
    names = [group.name for group in chapter.lookers if group.twin]
    if not names:
        return ""
    if len(names) == len(chapter.lookers):
        return " Every look is taken in mirrored too (a twin), with all methods."
    return f" {together(names)} {'takes' if len(names) == 1 else 'take'} in every look mirrored too. The others do not."


def _provenance(chapter: Chapter) -> Rows:
    head = (
        "method", "preset", "seed", "recipe", "held out", "scenes", "looks", "P", "twin", "device", "versions", "weights", "run",
    )  # fmt: skip
    rows: list[tuple[str | int | float, ...]] = [head]
    for group in chapter.groups:
        for run in group.runs:
            about = run.about
            versions = ", ".join(f"{name} {version}" for name, version in about.versions.items())
            rows.append(
                (
                    about.method, about.preset, about.seed, recipe_said(about), _held_out(about), about.scenes, about.looks,
                    about.samples or "", "yes" if about.twin else "no", about.device, versions, about.weights[:12], str(run.folder),
                )
            )  # fmt: skip
    first = chapter.about
    common = f"test set {first.test}, first looks by seed {first.first_looks}"
    rows.append(tuple({"method": "all", "versions": common}.get(column, "") for column in head))
    return tuple(rows)


def _held_out(about: About) -> str:
    return "not known" if about.hold_out is None else f"{100 * about.hold_out:g} %"
