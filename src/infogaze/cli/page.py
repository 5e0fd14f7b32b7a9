"""`infogaze page OUT`: a static page on which models look, in the visitor's browser."""

from __future__ import annotations

import tempfile
import threading
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from infogaze.errors import InfogazeError
from infogaze.page.serve import served
from infogaze.page.write import DEFAULT_MODELS, SETTINGS, write_page


@dataclass(frozen=True, kw_only=True)
class Page:
    """Write a page on which a model looks, glimpse by glimpse, in the visitor's browser; a folder for any web server.

    The folder holds all that the page needs: the models as graphs, and onnxruntime-web, which npm fetches once. Nothing is loaded from
    anywhere else, and pictures that visitors bring stay in their browser. Needs the extra "export".
    """

    out: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")] = None
    """The folder to write; with --open it may be left out, and lasts as long as the page is served."""
    models: str = ",".join(DEFAULT_MODELS)
    """Bundled names, or folders that training wrote, with commas between them; the first is shown first."""
    runtime: Path | None = None
    """An unpacked copy of onnxruntime-web, where there is no npm."""
    open: bool = False
    """Serve the page on this computer alone and open a browser, until Ctrl-C."""
    overwrite: bool = False
    """Write over a page that is there already."""

    def run(self) -> None:
        """Write, say how large it is, and serve it if asked to."""
        if self.out is None:
            if not self.open:
                raise InfogazeError("no folder is given; name one, or give --open to see the page without keeping it")
            with tempfile.TemporaryDirectory() as made:
                self._write(Path(made))
                _serve(Path(made))
            return
        if self.out.exists() and not self.out.is_dir():
            raise InfogazeError(f"{self.out}: a file, and a folder is needed")
        if (self.out / SETTINGS).exists() and not self.overwrite:
            raise InfogazeError(f"{self.out} holds a page already; --overwrite writes over it")
        if self.out.exists() and not (self.out / SETTINGS).exists() and any(self.out.iterdir()):
            raise InfogazeError(f"{self.out} holds other files, and no page; name a folder that is empty or new")
        self._write(self.out)
        if self.open:
            _serve(self.out)

    def _write(self, folder: Path) -> None:
        names = [name.strip() for name in self.models.split(",") if name.strip()]
        written = write_page(folder, names, runtime=self.runtime)
        for part, size in written.bytes_of.items():
            print(f"{part + ':':<24}{size / 1e6:6.1f} MB")
        print(f"{'in all:':<24}{written.bytes / 1e6:6.1f} MB in {folder}")


def _serve(folder: Path) -> None:
    with served(folder) as address:
        print(f"{'page:':<26}{address} (Ctrl-C ends)", flush=True)
        webbrowser.open(address)
        threading.Event().wait()


def read(arguments: Sequence[str]) -> Page:
    """The command with its options."""
    return tyro.cli(Page, prog="infogaze page", args=list(arguments))
