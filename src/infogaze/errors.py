"""The one kind of error that a user can mend; on the command line it is one line and exit code 2. Any other is a bug of ours."""

from __future__ import annotations


class InfogazeError(ValueError):
    """A wrong value, or a file that is missing or damaged. The message is one line: what is wrong, and what is allowed."""
