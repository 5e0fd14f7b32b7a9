"""How the scripts beside this one are called: wrong words and missing files end in one line and exit code 2."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable


def called(main: Callable[..., None], description: str | None) -> None:
    """Call main with the words of the command line. The description, the script's own, begins with its usage and a colon."""
    try:
        inspect.signature(main).bind(*sys.argv[1:])
    except TypeError:
        print(f"usage: {str(description).partition(':')[0]}", file=sys.stderr)
        raise SystemExit(2) from None
    try:
        main(*sys.argv[1:])
    except (ValueError, OSError) as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        raise SystemExit(2) from None
