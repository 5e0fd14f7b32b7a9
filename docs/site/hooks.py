"""What the site needs beyond mkdocs: links out of docs/ lead to pages too, and what nobody listed is listed.

Where the environment variable INFOGAZE_PAGE names a folder that `infogaze page` wrote, it becomes part of the site and its front door.

The pages are written to be read in the repository. There a link such as `../LOG.md` leads to a file beside docs/. On the site that file
becomes a page below `repository/`, or is copied there, and the link is turned to it.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import ConfigurationError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

import infogaze

_OUTSIDE = "repository/"
_FRAME = '<iframe class="front-door" src="page/index.html" title="A model that looks" allow="camera; clipboard-write"></iframe>'
_ROOT_OF = {"": "How to", "tutorials": "Tutorials", "adapters": "Adapters"}
"""The section for the pages of each folder of docs/."""
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_NUMBERS = re.compile(r"<td>(-?[\d.][-\d.,\s±\[\]]*)</td>")
_FENCE = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what pages link to outside docs/, and name in the navigation the pages that mkdocs.yml does not."""
    waiting = [file for file in files if file.is_documentation_page()]
    while waiting:
        file = waiting.pop()
        for target in _targets(file.content_string, _in_repository(file.src_uri)):
            name = _on_site(target)
            if name.startswith(_OUTSIDE) and files.get_file_from_path(name) is None:
                source = posixpath.join(posixpath.dirname(config.config_file_path), target)
                added = File.generated(config, name, abs_src_path=source, inclusion=InclusionLevel.NOT_IN_NAV)
                files.append(added)
                if added.is_documentation_page():
                    waiting.append(added)
    listed = set(_listed(config.nav))
    for file in sorted(files.documentation_pages(), key=lambda file: file.src_uri):
        if file.src_uri in listed or file.src_uri.startswith(_OUTSIDE):
            continue
        folder = posixpath.dirname(file.src_uri)
        _section(config.nav, _ROOT_OF.get(folder, folder.capitalize())).append(file.src_uri)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to where their targets are on the site; on the page of the API, add the names that it lacks."""
    source = _in_repository(page.file.src_uri)
    here = posixpath.dirname(page.file.src_uri)

    def turned(found: re.Match[str]) -> str:
        path, mark, heading = found[2].partition("#")
        if re.match(r"\w+:", found[2]) or not path:
            return found[0]
        name = _on_site(_resolved(path, source))
        return f"{found[1]}{posixpath.relpath(name, here or '.')}{mark}{heading}{found[3]}"

    parts = [part if part.lstrip().startswith("```") else _LINK.sub(turned, part) for part in _FENCE.split(markdown)]
    text = "".join(parts)
    if page.file.src_uri == "index.md" and _model_page() is not None:
        text = text.replace("\n![", f"\n{_FRAME}\n\n![", 1)
    if page.file.src_uri == "api.md":
        lacking = [name for name in infogaze.__all__ if f"::: infogaze.{name}\n" not in text and name != "__version__"]
        text += "".join(["\n## More\n", *(f"\n::: infogaze.{name}\n" for name in lacking)]) if lacking else ""
    return text


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mark the cells of tables that hold numbers alone: they are not broken into lines."""
    return _NUMBERS.sub(r'<td class="number">\1</td>', html)


def on_post_build(config: MkDocsConfig) -> None:
    """Copy the page on which models look."""
    page = _model_page()
    if page is not None:
        shutil.copytree(page, Path(config.site_dir) / "page", dirs_exist_ok=True)


def _model_page() -> Path | None:
    given = os.environ.get("INFOGAZE_PAGE")
    if not given:
        return None
    if not (Path(given) / "index.html").is_file():
        raise ConfigurationError(f"INFOGAZE_PAGE is {given}: no page that `infogaze page` wrote")
    return Path(given)


def _in_repository(uri: str) -> str:
    """The path of a page's source, from the root of the repository."""
    return uri.removeprefix(_OUTSIDE) if uri.startswith(_OUTSIDE) else f"docs/{uri}"


def _on_site(path: str) -> str:
    """Where a file of the repository is on the site."""
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{_OUTSIDE}{path}"


def _resolved(path: str, source: str) -> str:
    """The file that a link leads to, from the root of the repository; of a folder its README."""
    found = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    return f"{found}/README.md" if path.endswith("/") else found


def _targets(markdown: str, source: str) -> list[str]:
    """The files that a page links to."""
    text = _FENCE.sub("", markdown)
    paths = (found[2].partition("#")[0] for found in _LINK.finditer(text) if not re.match(r"\w+:", found[2]))
    return [_resolved(path, source) for path in paths if path]


def _listed(nav: Any) -> list[str]:
    """The pages that a navigation names."""
    if isinstance(nav, str):
        return [nav]
    children = nav.values() if isinstance(nav, dict) else nav
    return [name for child in children for name in _listed(child)]


def _section(nav: list[Any], title: str) -> list[Any]:
    """The pages of a section, which is made after the how-to pages if it is not there."""
    for entry in nav:
        if isinstance(entry, dict) and isinstance(entry.get(title), list):
            return entry[title]
    nav.insert(3, {title: []})
    return nav[3][title]
