"""The docs as a site: it is built without a warning, links lead somewhere, and nothing is asked from outside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import infogaze
from tests.support.docs import PAGES
from tests.support.paths import ROOT

pytestmark = pytest.mark.slow
OURS = ("index.html", "training.html", "api.html", "tutorials/student.html", "repository/RESULTS.html")
LOADS = {"img": "src", "script": "src", "link": "href", "source": "src", "iframe": "src", "video": "src"}


class Asked(HTMLParser):
    """What a page loads, what it links to, and the places in it that a link can lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.classes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors |= {found.get("id") or "", found.get("name") or ""}
        self.classes |= set((found.get("class") or "").split())
        if tag == "a":
            self.links.append(found.get("href") or "")
        elif tag in LOADS:
            self.loaded.append(found.get(LOADS[tag]) or "")


DOOR = ROOT / "src" / "infogaze" / "page" / "static"
"""Stands for a folder that `infogaze page` wrote: its own files, without models."""


def build(out: Path, page: Path) -> subprocess.CompletedProcess[str]:
    """Call `mkdocs build --strict` in a process of its own, with this page as the front door."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "INFOGAZE_PAGE": str(page)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site."""
    out = tmp_path_factory.mktemp("site") / "built"
    done = build(out, DOOR)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Asked]:
    door = site / "page"  # it has tests of its own
    return {path: Asked(path.read_text()) for path in site.rglob("*.html") if not path.is_relative_to(door)}


def test_a_page_on_which_models_look_is_the_front_door(site: Path, pages: dict[Path, Asked]) -> None:
    assert "page/index.html" in pages[site / "index.html"].loaded
    for file in DOOR.iterdir():
        assert (site / "page" / file.name).read_bytes() == file.read_bytes()


def test_a_front_door_that_is_no_page_is_named(tmp_path: Path) -> None:
    done = build(tmp_path / "site", tmp_path)
    assert done.returncode != 0
    assert f"INFOGAZE_PAGE is {tmp_path}: no page that `infogaze page` wrote" in done.stdout + done.stderr


def test_every_page_of_docs_is_a_page_of_the_site_and_in_its_navigation(site: Path, pages: dict[Path, Asked]) -> None:
    names = [page.removeprefix("docs/").removesuffix(".md") + ".html" for page in PAGES if page != "README.md"]
    assert {*OURS} <= {*names, "repository/RESULTS.html"}
    links = {(site / link).resolve() for link in pages[site / "index.html"].links if link and "#" not in link}
    for name in names:
        assert (site / name).is_file(), name
        folder = Path(name).parent
        sections = {link for link in links if link.parent == (site / folder).resolve()}
        assert sections, f"{folder} has no tab"
        listed = {(site / folder / link).resolve() for link in pages[site / name].links if link and "#" not in link}
        assert (site / name).resolve() in listed | {(site / "index.html").resolve()}, f"{name} is not in the navigation"


def test_nothing_is_loaded_from_outside(site: Path, pages: dict[Path, Asked]) -> None:
    outside = re.compile(r"(https?:)?//", re.IGNORECASE)
    for path, page in pages.items():
        assert [address for address in page.loaded if outside.match(address)] == [], path
        assert "mermaid" not in page.classes, f"{path}: the theme would load a library for it"
    for sheet in site.rglob("*.css"):
        assert re.findall(r"""url\(\s*["']?(?:https?:)?//[^)]*""", sheet.read_text()) == [], sheet
        assert "@import" not in sheet.read_text(), sheet


def test_what_a_page_loads_or_links_to_on_the_site_is_there(site: Path, pages: dict[Path, Asked]) -> None:
    """Also links that mkdocs does not check: to files that are not pages."""
    broken = []
    for path, page in pages.items():
        for address in [*page.loaded, *page.links]:
            name, _, heading = unquote(address).partition("#")
            if (not name and not heading) or re.match(r"\w+:", name) or path.name == "404.html":
                continue
            target = (path.parent / name).resolve() if name else path
            if not target.is_file() or (heading and target in pages and heading not in pages[target].anchors):
                broken.append((str(path.relative_to(site)), address))
    assert broken == []


def test_the_api_has_every_public_name_with_its_docstring(site: Path, pages: dict[Path, Asked]) -> None:
    names = set(infogaze.__all__) - {"__version__"}
    assert {name for name in names if f"infogaze.{name}" not in pages[site / "api.html"].anchors} == set()
    text = (site / "api.html").read_text()
    assert "The blind loop over a batch of scenes" not in text, "modules are no public names"
    assert "A batch of scenes, looked at one glimpse at a time." in text


def test_links_out_of_docs_lead_to_pages_too(site: Path) -> None:
    text = (site / "evaluation.html").read_text()
    assert 'href="repository/LOG.html"' in text
    assert 'href="repository/recipes/sweep.slurm"' in text
    assert (site / "repository" / "recipes" / "sweep.slurm").read_bytes() == (
        ROOT / "recipes" / "sweep.slurm"
    ).read_bytes()
    assert 'href="../methods.html"' in (site / "repository" / "RESULTS.html").read_text()


def test_the_site_is_left_out_of_what_it_is_built_from(site: Path) -> None:
    linked = site / "repository"
    own = [path for path in site.rglob("*.py") if not path.is_relative_to(linked)]
    assert not own, "what builds the site is no part of it"
    assert not (ROOT / "site").exists()
