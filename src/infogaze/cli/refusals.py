"""What the parser of the command line refuses, in a line of ours. It says so in a drawn box, and has no other way to say it."""

from __future__ import annotations

import re


def refusal(boxed: str, program: str) -> str:
    """An error that the parser drew as a box, in a line of ours: the option, what was given, what is allowed."""
    text = _undrawn(boxed)
    for pattern, words in _REFUSALS:
        if found := re.search(pattern, text, re.M):
            return words(found, program)
    return one_line(boxed)


def one_line(boxed: str) -> str:
    """The words of an error that came in a drawn box."""
    title, *lines = [line.strip() for line in _undrawn(boxed).splitlines()] or [""]
    return re.sub(r"\s+", " ", f"{title}: {' '.join(lines)}" if lines else title)


def _undrawn(boxed: str) -> str:
    """The lines in a box, as far from the left as they were, without those that hold no words; it may be drawn in ASCII."""
    words = re.sub(r"[─-╿]", " ", re.sub(r"\x1b\[[0-9;]*m", "", boxed))
    return "\n".join(line.rstrip() for line in words.splitlines() if line.strip(" -"))


def _wrong_choice(found: re.Match[str], program: str) -> str:
    allowed = re.findall(r"'(.*?)'", found["allowed"])
    if "None" in allowed:  # these come in another order each time
        allowed.sort(key=lambda choice: (choice == "None", choice))
    return f"{found['option']} is {found['given']}; it must be one of {', '.join(allowed)}"


def _wrong_value(found: re.Match[str], program: str) -> str:
    kinds = [_KINDS.get(kind, kind) for kind in (part.strip("{}") for part in found["allowed"].split("|"))]
    given = found["values"] if found["value"] is None else found["value"]
    return f"{found['option']} is {given or 'empty'}; it must be {' or '.join(reversed(kinds))}"


def _wrong_part(found: re.Match[str], program: str) -> str:
    return f"--{found['group']}.{found['option'].replace('_', '-')} {found['why']}"


def _no_value(found: re.Match[str], program: str) -> str:
    values = "a value" if found["count"] == "1" else f"{found['count']} values"
    return f"{found['option']} needs {values}; see `{program} --help`"


def _missing(found: re.Match[str], program: str) -> str:
    needed, unknown = (re.findall(r"^ {6}(\S.*)", found[part] or "", re.M) for part in ("needed", "unknown"))
    more = f" and does not take {', '.join(unknown)}" if unknown else ""
    return f"{program} needs {', '.join(needed)}{more}; see `{program} --help`"


def _unknown(found: re.Match[str], program: str) -> str:
    similar = re.findall(r"^ {6}(--[^\s,]+)", found["similar"], re.M)
    perhaps = f"perhaps {' or '.join(similar)} is meant; " if similar else ""
    return f"{program} does not take {found['unknown']}; {perhaps}see `{program} --help`"


_KINDS = {
    "INT": "a whole number",
    "FLOAT": "a number",
    "INT INT": "two whole numbers",
    "[INT [INT ...]]": "whole numbers",
}
"""What the parser's names of values mean."""

_REFUSALS = (
    (
        r"invalid choice (?P<given>'.*') for argument '(?P<option>.*)'\. Expected one of \((?P<allowed>.*)\)",
        _wrong_choice,
    ),
    (
        r"Error parsing (?P<option>--\S+): .*(?:from \[(?P<values>.*)\]\.|: (?P<value>['\"].*))$(?s:.*?)"
        r"Argument helptext:\s+--\S+ (?P<allowed>.*)",
        _wrong_value,
    ),
    (r"Error parsing (?P<group>[a-z]+): (?P<option>\w+) (?P<why>.*)", _wrong_part),
    (r"Missing value for argument '(?P<option>.*)'\. Expected (?P<count>\d+)", _no_value),
    (
        r"Missing from .*:\n(?P<needed>(?: {6}.*\n)+)(?: *Unrecognized options:\n(?P<unknown>(?: {6}.*\n)+))?",
        _missing,
    ),
    (r"Unrecognized options: (?P<unknown>.*)(?P<similar>(?s:.*))", _unknown),
)
"""Errors of the parser by what is in them; one that is not among them is told in its own words."""
