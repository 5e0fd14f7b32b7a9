"""The snippets of README and docs, and a small world to run them in, in which the names that they use are real files and folders."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infogaze.cli.main import main
from infogaze.cli.settings import read_run_file, resolved_changes, resolved_options, resolved_preset, resolved_recipe
from infogaze.methods import registry
from infogaze.page.runtime import FILES
from infogaze.presets import PRESETS, Preset
from infogaze.report.write import write_report
from infogaze.sweep import processes
from infogaze.sweep.jobs import Job
from infogaze.sweep.leases import Lease
from infogaze.training.recipe import PhaseRecipe
from infogaze.typed import override
from tests.support.paths import ROOT
from tests.support.sets import noise, write_cifar10, write_image

RUN_HERE = ("python", "sh", "toml")
"""The languages of blocks that are run."""
PAGES = ("README.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md"))))
LESSONS = tuple(page for page in PAGES if page.startswith("docs/tutorials/"))
"""Pages whose blocks are one session: each goes on where the one before stopped."""
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_STEPS = 2
"""Of a phase: recipes stay as they are but for their length."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    page: str
    number: int
    """On the page, from 1."""
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}, block {self.number} ({self.language})"


def blocks_of(page: str, text: str | None = None) -> list[Block]:
    """The blocks of a page of the repository, or of a text that is one."""
    text = (ROOT / page).read_text() if text is None else text
    found = enumerate(_FENCE.findall(text), start=1)
    return [Block(page=page, number=number, language=language, text=body) for number, (language, body) in found]


def command_lines(block: Block) -> list[list[str]]:
    """The words of each command of a shell block, without comments."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def sets_up(words: list[str]) -> bool:
    """Whether a command makes an environment and runs something in it."""
    return words[:3] == ["python3", "-m", "venv"]


class SnippetError(AssertionError):
    """A snippet that does not do what its page says."""


@dataclass(frozen=True)
class World:
    """A folder with what snippets speak of: PICTURES, PICTURE, MASK and DATA; RUN, CNN, SWEEP, FIRST and run.toml when they are needed.

    What a snippet needs and no snippet before it made is made for it, so that each can be run alone too.
    """

    folder: Path

    def run(self, block: Block, names: dict[str, Any] | None = None) -> str:
        """Run a block here, with these names in Python; what it printed. SnippetError says which line failed and how."""
        names = {"__name__": "__main__"} if names is None else names
        said = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                if block.language == "python":
                    self._python(block, names)
                else:
                    {"sh": self._shell, "toml": self._settings}[block.language](block)
            except (Exception, SystemExit) as error:
                raise SnippetError(f"{block}: {type(error).__name__}: {error}\n{said.getvalue()}") from error
        return said.getvalue()

    def lesson(self, blocks: Sequence[Block]) -> str:
        """Run the blocks of a page one after the other, with the same names in Python; what they printed."""
        names: dict[str, Any] = {"__name__": "__main__"}
        return "".join(self.run(block, names) for block in blocks)

    def _python(self, block: Block, names: dict[str, Any]) -> None:
        for name in re.findall(r'out="([^"]+)"', block.text):
            remove(Path(name))
        made = re.sub(r'out="[^"]+"', "", block.text)
        self._provide(re.findall(r'"([^"\s]+)"', made))
        try:
            exec(compile(block.text, str(block), "exec"), names)
        finally:
            registry._REGISTRY.added.clear()

    def _shell(self, block: Block) -> None:
        for words in command_lines(block):
            if sets_up(words):
                continue
            if "--out" in words:
                # The lines of a block may be different ways to make the same thing.
                remove(Path(words[words.index("--out") + 1]))
            self._provide(word for before, word in pairwise(words) if before != "--out")
            if words[0] == "infogaze":
                call(*words[1:])
            elif words[0] == "torchrun":
                # A process of its own knows nothing of what is made small here.
                torchrun = [sys.executable, "-m", "torch.distributed.run", *words[1:], "--length", "0.02"]
                done = subprocess.run(torchrun, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise SnippetError(f"{shlex.join(words)}: {done.stdout}{done.stderr}")
            elif words[0] == "python":
                script = [sys.executable, str(ROOT / words[1]), *words[2:]]
                done = subprocess.run(script, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise SnippetError(f"{shlex.join(words)}: {done.stdout}{done.stderr}")
            else:
                raise SnippetError(f"{shlex.join(words)}: not a command that is run here")

    def _settings(self, block: Block) -> None:
        path = Path("snippet.toml")
        path.write_text(block.text)
        file = read_run_file(path)
        preset = override(resolved_preset(file, None), resolved_changes(file, {}))
        resolved_recipe(file, file.recipe_name or preset.recipe, {})
        resolved_options(file, {})

    def _provide(self, names: Iterator[str] | list[str]) -> None:
        for name in names:
            for known, make in _MADE.items():
                if (name == known or name.startswith(f"{known}/")) and not Path(known).exists():
                    call(*shlex.split(make))


_MADE = {
    "run.toml": "init PICTURES --out run.toml",
    "FIRST": "train cifar10 --root DATA --method random --phases 1 --out FIRST",
    "RUN": "train cifar10 --root DATA --out RUN",
    "RUN/evaluation": "evaluate RUN --measure records",
    "CNN": "train cifar10 --root DATA --method cnn --out CNN",
    "SWEEP": "sweep cifar10 --root DATA --methods infogaze,random --seeds 1 --out SWEEP",
}
"""How what snippets need is made."""


def call(*arguments: str) -> None:
    """A call of the command line in this process, which must end well."""
    try:
        main(arguments)
    except SystemExit as stop:
        if stop.code not in (0, None):
            raise SnippetError(f"infogaze {shlex.join(arguments)}: exit code {stop.code}") from None


def remove(path: Path) -> None:
    """A file or folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def small_worlds(folder: Path) -> Iterator[Callable[[str], World]]:
    """Worlds by name, each made once. Meanwhile networks are tiny, phases a few steps long, and jobs of a sweep run in this process."""
    _write_pictures(folder / "PICTURES")
    shutil.copy(folder / "PICTURES" / "bar" / "0.png", folder / "PICTURE")
    mask = np.full((24, 32, 3), 255, dtype=np.uint8)
    mask[:8] = 0
    write_image(folder / "mask.png", mask)
    (folder / "mask.png").rename(folder / "MASK")
    made: dict[str, World] = {}

    def world(name: str) -> World:
        if name not in made:
            made[name] = World(folder / "worlds" / re.sub(r"\W", "-", name))
            made[name].folder.mkdir(parents=True)
            for shared in ("PICTURES", "PICTURE", "MASK", "DATA"):
                (made[name].folder / shared).symlink_to(folder / shared)
        return made[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFOGAZE_CACHE", str(folder / "cache"))
        write_cifar10(folder / "DATA", patch)
        for name, preset in PRESETS.items():
            patch.setitem(PRESETS, name, _tiny(preset))
        whole = PhaseRecipe.num_steps
        patch.setattr(PhaseRecipe, "num_steps", lambda self, images: min(_STEPS, whole(self, images)))
        patch.setattr(processes, "start", _start_here)
        patch.setattr(processes, "_WAIT", 0.0)
        patch.setattr("infogaze.cli.report.write_report", partial(write_report, dpi=40))
        # npm would fetch it, and tests need no network.
        patch.setattr("infogaze.page.write.runtime_files", lambda given: {file.name: b"" for file in FILES})
        yield world


def _tiny(preset: Preset) -> Preset:
    sizes = replace(preset.model, glimpse_widths=(4,), feature_size=8, belief_size=16, latent_size=4, flow_layers=1)
    return replace(preset, model=sizes, num_looks=3, num_samples=2)


def _write_pictures(folder: Path) -> None:
    """Twelve each of two classes: noise, and noise with a bright bar across it."""
    for number in range(12):
        pixels = noise(number, 24, 32, 3) // 4
        write_image(folder / "dots" / f"{number}.png", pixels)
        pixels[8:12] = 220
        write_image(folder / "bar" / f"{number}.png", pixels)


@dataclass
class _Over:
    """A process that has ended."""

    returncode: int

    def poll(self) -> int:
        return self.returncode


def _start_here(job: Job, log: Path, at_once: int, *, lease: Lease | None = None) -> _Over:
    with log.open("a") as output, contextlib.redirect_stdout(output):
        for command in job.commands:
            call(*command)
    return _Over(0)
