"""The command line: names the commands, reads their options, and turns a wrong value into one line and exit code 2."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, runtime_checkable

import tyro


@runtime_checkable
class Command(Protocol):
    """A command with its options filled in."""

    def run(self) -> None:
        """Do it."""
        ...


COMMANDS = {
    "quickstart": "Quickstart",
    "data": "Data",
    "train": "Train",
    "sweep": "Sweep",
    "evaluate": "Evaluate",
    "report": "Report",
    "look": "LookAt",
    "bench": "Bench",
}
"""By name, the class in the module of that name under `commands`."""


def command(name: str) -> type[Command]:
    """The command of this name, with what it needs: one that draws nothing need not wait for a plotting library."""
    found: type[Command] = getattr(import_module(f"infogaze.commands.{name}"), COMMANDS[name])
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command. Wrong values end in one line on standard error and exit code 2, Ctrl-C in 130, a reader that leaves in 141."""
    try:
        _parse(sys.argv[1:] if arguments is None else list(arguments)).run()
    except BrokenPipeError:  # as in `infogaze train --help | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left to write at exit goes nowhere
        raise SystemExit(141) from None  # as a shell has it for SIGPIPE
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
            if arguments and arguments[0] in COMMANDS:
                name, *options = arguments
                return tyro.cli(command(name), prog=f"infogaze {name}", args=options)
            return tyro.extras.subcommand_cli_from_dict(
                {name: command(name) for name in COMMANDS},
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
