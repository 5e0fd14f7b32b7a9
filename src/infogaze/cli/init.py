"""`infogaze init FOLDER`: look at own pictures and write the settings that a first training on them needs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from infogaze.errors import InfogazeError
from infogaze.files import make_folder, write_whole
from infogaze.tasks.init import describe_pictures, run_file


@dataclass(frozen=True)
class Init:
    """Look at a folder of pictures and write a run.toml with sensible settings for them.

    The folder has one sub-folder a class, or train/ and test/ that have them. Glimpse, stride and number of looks follow the pictures'
    size; every value stands in the file with what it means. `infogaze train --config run.toml --out RUN` trains by it.
    """

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """The pictures."""
    out: Path = Path("run.toml")
    """The file to write."""
    overwrite: bool = False
    """Write over a file that is there already."""

    def run(self) -> None:
        """Look, write, say how to go on."""
        if self.out.exists() and not self.overwrite:
            raise InfogazeError(f"{self.out} is there already; --overwrite writes over it, --out names another file")
        pictures = describe_pictures(self.folder)
        make_folder(self.out.parent)
        seen_from_file = Path(os.path.relpath(self.folder, self.out.parent))
        write_whole(self.out, run_file(seen_from_file, pictures).encode())
        print(f"settings: {self.out}\nnext:     infogaze train --config {self.out} --out RUN")


def read(arguments: Sequence[str]) -> Init:
    """The command with its options."""
    return tyro.cli(Init, prog="infogaze init", args=list(arguments))
