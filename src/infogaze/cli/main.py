"""The command line: names the commands, reads their options, and turns a wrong value into one line and exit code 2."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Protocol, runtime_checkable

import tyro

from infogaze import __version__
from infogaze.cli.refusals import refusal
from infogaze.errors import InfogazeError


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
    found: type[Command] = getattr(import_module(f"infogaze.cli.{name}"), COMMANDS[name])
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command. What a user can mend ends in one line on standard error and exit code 2, Ctrl-C in 130, a reader that leaves in 141.

    Any other error is a bug of ours and shows its traceback; `--debug`, anywhere in the call, shows it of every error.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    debug = "--debug" in given
    given = [argument for argument in given if argument != "--debug"]
    try:
        if given[:1] == ["--version"]:
            print(f"infogaze {__version__}")
        else:
            _parse(given).run()
    except BrokenPipeError:  # as in `infogaze train --help | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left to write at exit goes nowhere
        raise SystemExit(141) from None  # as a shell has it for SIGPIPE
    except InfogazeError as error:
        if debug:
            raise
        print(f"infogaze: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("infogaze: stopped", file=sys.stderr)
        raise SystemExit(130) from None


def _parse(arguments: list[str]) -> Command:
    if not arguments:
        raise InfogazeError(f"no command is given; there are {', '.join(COMMANDS)}")
    name, *options = arguments
    if name in COMMANDS:
        return _filled_in(name, options)
    if name in {"-h", "--help"} or name.startswith("--tyro-"):
        return tyro.extras.subcommand_cli_from_dict(
            {name: command(name) for name in COMMANDS},
            prog="infogaze",
            description="Classify a scene that is never seen whole, by looking where the expected information gain is largest. "
            "`infogaze --version` says which version this is; --debug in any call shows the traceback of an error.",
            args=arguments,
        )
    raise InfogazeError(f"no command is called {name!r}; there are {', '.join(COMMANDS)}, and --help and --version")


def _filled_in(name: str, options: list[str]) -> Command:
    program = f"infogaze {name}"
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return tyro.cli(command(name), prog=program, args=options)
    except SystemExit as stop:
        if not stop.code:
            raise
    # Once more, for its words: drawn as wide as the terminal, values would be broken in two.
    with contextlib.redirect_stderr(io.StringIO()) as said, _endless_lines(), contextlib.suppress(SystemExit):
        tyro.cli(command(name), prog=program, args=options)
    raise InfogazeError(refusal(said.getvalue(), program))


@contextlib.contextmanager
def _endless_lines() -> Iterator[None]:
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "1000000"
    try:
        yield
    finally:
        del os.environ["COLUMNS"]
        if before is not None:
            os.environ["COLUMNS"] = before


if __name__ == "__main__":
    main()
