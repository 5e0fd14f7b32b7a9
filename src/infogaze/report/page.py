"""The page of a first run: accuracy by look and a dozen rollouts, in one file that needs nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2733; --quiet: #5c6874; --paper: #fbfbfa; --card: #ffffff; --edge: #e3e7eb; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ec; --quiet: #a3adb7; --paper: #15191e; --card: #ffffff; --edge: #2b333b; }
}
body { margin: 0 auto; max-width: 74rem; padding: 2rem 1.2rem 4rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; } h2 { font-size: 1.2rem; margin: 2.4rem 0 .5rem; }
p { max-width: 46rem; } .quiet { color: var(--quiet); }
figure { margin: .8rem 0; background: var(--card); border: 1px solid var(--edge); border-radius: .5rem; padding: .6rem; }
figure img { display: block; max-width: 100%; height: auto; margin: 0 auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .84rem; } .scroll { overflow-x: auto; }
th, td { padding: .25rem .5rem; text-align: right; border-bottom: 1px solid var(--edge); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
code { font-size: .92em; } @media print { figure { break-inside: avoid; } }
"""


@dataclass(frozen=True)
class Picture:
    """A figure on the page."""

    address: str
    """Where the image is; a data address keeps the page in one file."""
    says: str
    """What it shows, for those who cannot see it."""


@dataclass(frozen=True)
class Section:
    """A heading, the sentence to take away, and what bears it out."""

    title: str
    sentence: str
    pictures: tuple[Picture, ...]
    table: tuple[tuple[str, ...], ...] = ()
    """The first row is the head."""


def page(title: str, opening: str, sections: tuple[Section, ...], closing: str) -> str:
    """One self-contained HTML document."""
    body = "\n".join(_section(section) for section in sections)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{_STYLE}</style></head>
<body><h1>{escape(title)}</h1><p>{escape(opening)}</p>
{body}
<p class="quiet">{escape(closing)}</p></body></html>
"""


def _section(section: Section) -> str:
    figures = "\n".join(
        f'<figure><img src="{escape(picture.address)}" alt="{escape(picture.says)}"></figure>'
        for picture in section.pictures
    )
    return f"<h2>{escape(section.title)}</h2><p>{escape(section.sentence)}</p>\n{_table(section.table)}\n{figures}"


def _table(rows: tuple[tuple[str, ...], ...]) -> str:
    if not rows:
        return ""
    head, *body = rows
    lines = ["<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in body]
    return '<div class="scroll"><table>' + "\n".join(lines) + "</table></div>"
