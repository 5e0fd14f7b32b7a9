"""The command line: names the commands, reads their options, and turns a wrong value into one line and exit code 2."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import tyro

from infogaze.commands.bench import Bench
from infogaze.commands.data import Data
from infogaze.commands.evaluate import Evaluate
from infogaze.commands.look import LookAt
from infogaze.commands.quickstart import Quickstart
from infogaze.commands.report import Report
from infogaze.commands.sweep import Sweep
from infogaze.commands.train import Train


@runtime_checkable
class Command(Protocol):
    """A command with its options filled in."""

    def run(self) -> None:
        """Do it."""
        ...


COMMANDS: dict[str, Callable[..., Command]] = {
    "quickstart": Quickstart,
    "data": Data,
    "train": Train,
    "sweep": Sweep,
    "evaluate": Evaluate,
    "report": Report,
    "look": LookAt,
    "bench": Bench,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command. Wrong values end in one line on standard error and exit code 2, Ctrl-C in 130."""
    try:
        _parse(sys.argv[1:] if arguments is None else list(arguments)).run()
    except (ValueError, OSError) as error:
        print(f"infogaze: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("infogaze: stopped", file=sys.stderr)
        raise SystemExit(130) from None


def _parse(arguments: list[str]) -> Command:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.extras.subcommand_cli_from_dict(
                COMMANDS,
                prog="infogaze",
                description="Classify a scene that is never seen whole, by looking where the expected information gain is largest.",
                args=arguments,
            )
    except SystemExit as stop:
        if stop.code:
            raise ValueError(one_line(said.getvalue())) from None
        raise


def one_line(boxed: str) -> str:
    """The words of an error that came in a drawn box."""
    words = re.sub(r"[─-╿]", " ", re.sub(r"\x1b\[[0-9;]*m", "", boxed))
    title, *lines = [line.strip() for line in words.splitlines() if line.strip()] or [""]
    return re.sub(r"\s+", " ", f"{title}: {' '.join(lines)}" if lines else title)


if __name__ == "__main__":
    main()
