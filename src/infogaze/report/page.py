"""Pages that are one file and need nothing else: of the quickstart, and of a report in chapters."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape

from infogaze.report.drawing import Rows

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2733; --quiet: #5c6874; --paper: #fbfbfa; --card: #ffffff; --edge: #e3e7eb; --link: #0b5394; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ec; --quiet: #a3adb7; --paper: #15191e; --card: #ffffff; --edge: #2b333b; --link: #8ab8e6; }
}
body { margin: 0 auto; max-width: 74rem; padding: 2rem 1.2rem 4rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; } h2 { font-size: 1.2rem; margin: 2.4rem 0 .5rem; }
p { max-width: 46rem; } .quiet { color: var(--quiet); } a { color: var(--link); }
figure { margin: .8rem 0; background: var(--card); border: 1px solid var(--edge); border-radius: .5rem; padding: .6rem; }
figure img { display: block; max-width: 100%; height: auto; margin: 0 auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .84rem; } .scroll { overflow-x: auto; }
th, td { padding: .25rem .5rem; text-align: right; border-bottom: 1px solid var(--edge); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
code { font-size: .92em; } @media print { figure { break-inside: avoid; } }
"""

_BOOK_STYLE = """
h2 { font-size: 1.55rem; margin-top: 3.2rem; } h3 { font-size: 1.12rem; margin: 2.4rem 0 .4rem; break-after: avoid; }
nav ul { columns: 2 22rem; margin: .2rem 0 1rem; padding: 0; list-style: none; } nav p { margin: .6rem 0 0; font-weight: 600; }
.sentence { font-weight: 600; break-after: avoid; } .note { font-size: .88rem; color: var(--quiet); margin: .3rem 0 .4rem; }
summary { cursor: pointer; font-size: .88rem; } details { margin: .2rem 0 1.2rem; }
.left td, .left th { text-align: left; white-space: normal; } .words { margin: 1.2rem 0; }
.words td:nth-child(2), .words th:nth-child(2) { text-align: left; white-space: normal; min-width: 16rem; }
.of { font-weight: 400; font-size: .88rem; color: var(--quiet); }
@media print {
  :root { --ink: #000; --quiet: #444; --paper: #fff; --edge: #ccc; --link: #000; }
  body { max-width: none; padding: 0; font-size: 10.5pt; } p { max-width: none; } details, .files { display: none; }
  figure { border: 0; padding: 0; } figure img { max-height: 19cm; width: auto; } main > section + section h2 { break-before: page; }
  .plate { break-inside: avoid; } tr { break-inside: avoid; } table { font-size: 8pt; }
  .scroll { overflow: visible; }
}
"""


@dataclass(frozen=True)
class Picture:
    """A figure on the page."""

    address: str
    """Where the image is; a data address keeps the page in one file."""
    alt_text: str
    """What it shows, for those who cannot see it."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, the sentence to take away, and what shows it."""

    title: str
    sentence: str
    pictures: tuple[Picture, ...]
    table: Rows = ()
    """The first row is the head."""


@dataclass(frozen=True, kw_only=True)
class Plate:
    """A figure of a report: what to take away, the picture, how to read it, the numbers."""

    sentence: str
    picture: Picture
    note: str
    table: Rows
    files: str
    """Path of its files from the page, without their ending."""


@dataclass(frozen=True, kw_only=True)
class Heading:
    """A heading and the figures under it."""

    title: str
    anchor: str
    paper: str
    """The figures of the paper that they can be laid beside."""
    plates: tuple[Plate, ...]


@dataclass(frozen=True, kw_only=True)
class Part:
    """A chapter of a report: one image set."""

    title: str
    opening: str
    methods: Rows
    """What each method is, and how far it comes."""
    headings: tuple[Heading, ...]
    missing: Rows
    """What was left out, why, and which command would produce it."""
    provenance: Rows
    """A row a run."""


def page(title: str, *, opening: str, sections: tuple[Section, ...], closing: str) -> str:
    """The page of the quickstart."""
    body = "\n".join(_section(section) for section in sections)
    return _document(title, _STYLE, f'<p>{_text(opening)}</p>\n{body}\n<p class="quiet">{_text(closing)}</p>')


def book(title: str, opening: str, parts: tuple[Part, ...]) -> str:
    """The page of a report."""
    contents = "\n".join(_contents(part) for part in parts)
    body = "\n".join(_part(part) for part in parts)
    return _document(
        title,
        _STYLE + _BOOK_STYLE,
        f'<p>{_text(opening)}</p>\n<nav aria-label="contents">{contents}</nav>\n<main>{body}</main>',
    )


def _text(text: str) -> str:
    """Text for the page: what stands in backticks as code, and no line broken before a percent sign."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text).replace(" %", "&nbsp;%"))


def _document(title: str, style: str, body: str) -> str:
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{style}</style></head>
<body><h1>{escape(title)}</h1>{body}</body></html>
"""


def _section(section: Section) -> str:
    figures = "\n".join(f"<figure>{_image(picture)}</figure>" for picture in section.pictures)
    return f"<h2>{_text(section.title)}</h2><p>{_text(section.sentence)}</p>\n{_table(section.table)}\n{figures}"


def _image(picture: Picture) -> str:
    return f'<img src="{escape(picture.address)}" alt="{escape(picture.alt_text)}">'


def _contents(part: Part) -> str:
    lines = "".join(f'<li><a href="#{heading.anchor}">{_text(heading.title)}</a></li>' for heading in part.headings)
    return f"<p>{_text(part.title)}</p><ul>{lines}</ul>"


def _part(part: Part) -> str:
    headings = "\n".join(_heading(heading) for heading in part.headings)
    missing = ""
    if len(part.missing) > 1:
        missing = f"<h3>Left out</h3>{_table(part.missing, 'left')}"
    return (
        f"<section><h2>{_text(part.title)}</h2><p>{_text(part.opening)}</p>\n{_table(part.methods, 'words')}\n{headings}\n{missing}"
        f"<h3>Where these numbers come from</h3>{_table(part.provenance, 'left')}</section>"
    )


def _heading(heading: Heading) -> str:
    plates = "\n".join(_plate(plate) for plate in heading.plates)
    several = "s" if "," in heading.paper or " to " in heading.paper else ""
    beside = f' <span class="of">the paper\'s figure{several} {_text(heading.paper)}</span>' if heading.paper else ""
    return f'<section id="{heading.anchor}"><h3>{_text(heading.title)}{beside}</h3>{plates}</section>'


def _plate(plate: Plate) -> str:
    numbers = f"<details><summary>The numbers</summary>{_table(plate.table)}</details>" if plate.table else ""
    files = ", ".join(f'<a href="{escape(plate.files)}.{kind}">{kind.upper()}</a>' for kind in ("png", "svg", "csv"))
    return (
        f'<div class="plate"><p class="sentence">{_text(plate.sentence)}</p><figure>{_image(plate.picture)}</figure>'
        f'<p class="note">{_text(plate.note)} <span class="files">Beside this page: {files}.</span></p>{numbers}</div>'
    )


def _table(rows: Rows, kind: str = "") -> str:
    if not rows:
        return ""
    head, *body = rows
    lines = ["<tr>" + "".join(f"<th>{_text(str(cell))}</th>" for cell in head) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{_text(str(cell))}</td>" for cell in row) + "</tr>" for row in body]
    classes = f"scroll {kind}".strip()
    return f'<div class="{classes}"><table>' + "\n".join(lines) + "</table></div>"
