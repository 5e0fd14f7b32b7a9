"""The command line: finds the command, reads its options, and turns what a user can mend into one line and exit code 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Protocol, runtime_checkable

from infogaze.errors import InfogazeError
from infogaze.version import __version__


@runtime_checkable
class Command(Protocol):
    """A command with its options filled in."""

    def run(self) -> None:
        """Do it."""
        ...


COMMANDS = {
    "quickstart": "Train on the embedded handwritten digits, about three minutes on two cores, and see the model look.",
    "init": "Look at a folder of pictures and write a run.toml with sensible settings for them.",
    "train": "Train a model, phase by phase, and write it to a folder together with its metrics and checkpoints.",
    "look": "Classify one picture glimpse by glimpse, and draw what was looked at, expected and believed.",
    "score": "Classify many scenes look by look, and write one row a scene as Parquet.",
    "evaluate": "Measure runs on the test split they belong to, every image once.",
    "calibrate": "Choose when a model may stop looking early, with a promise of what that costs.",
    "distil": "Give a model a gain that is read from the belief in one pass, many times as fast as what it imagines.",
    "sweep": "Train and evaluate methods over seeds.",
    "report": "Turn evaluated runs into one page with all figures: accuracy, policies, calibration, rollouts and more.",
    "data": "List the image sets, check one file by file, or draw a sheet of its images.",
    "gym": "Let a model play ap_gym's image-classification environments, whose glimpses move by bounded steps.",
    "export": "Write a model as ONNX graphs with a contract, to look where there is no torch: a browser, C++, a small computer.",
    "page": "Write a page on which a model looks, glimpse by glimpse, in the visitor's browser; a folder for any web server.",
    "bench": "Measure images a second of each phase and of the test procedure, and the time of one decision.",
}
"""By name, what each does. A command is loaded when it is asked for, with all that it needs."""


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
        elif given[:1] in (["-h"], ["--help"]):
            print(_help())
        else:
            parse(given).run()
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


def parse(arguments: Sequence[str]) -> Command:
    """The command of a call, with its options; wrong ones end in the parser's own words and exit code 2."""
    if not arguments:
        raise InfogazeError(f"no command is given; there are {', '.join(COMMANDS)}")
    name, *options = arguments
    if name not in COMMANDS:
        raise InfogazeError(f"no command is called {name!r}; there are {', '.join(COMMANDS)}, and --help and --version")
    read: Callable[[list[str]], Command] = import_module(f"infogaze.cli.{name}").read
    return read(options)


def _help() -> str:
    width = max(map(len, COMMANDS)) + 2
    lines = [f"  {name:<{width}}{what}" for name, what in COMMANDS.items()]
    return "\n".join(
        [
            "usage: infogaze COMMAND [options]",
            "",
            "Classify a scene that is never seen whole, by looking where the expected information gain is largest.",
            "",
            *lines,
            "",
            "infogaze COMMAND --help says what a command takes; --version says which version this is; --debug, in any call, shows",
            "the traceback of an error.",
        ]
    )


if __name__ == "__main__":
    main()
