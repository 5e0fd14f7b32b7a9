"""What has more than three fields or arguments is keyword-only: a call site names what it passes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SOURCE = ROOT / "src" / "infogaze"
MOST = 3
FILES = sorted(SOURCE.rglob("*.py"))


def records(tree: ast.AST) -> Iterator[tuple[str, int, bool]]:
    """Dataclasses: name, number of fields, whether they are keyword-only."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        for decorator in node.decorator_list:
            called = decorator if isinstance(decorator, ast.Call) else None
            name = called.func if called is not None else decorator
            if isinstance(name, ast.Name) and name.id == "dataclass":
                options = (
                    {} if called is None else {option.arg: ast.unparse(option.value) for option in called.keywords}
                )
                fields = [
                    part
                    for part in node.body
                    if isinstance(part, ast.AnnAssign) and "ClassVar" not in ast.unparse(part.annotation)
                ]
                yield node.name, len(fields), options.get("kw_only") == "True"


def functions(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Functions: name, and how many arguments may be given without their names; a method's own object does not count."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            given = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
            yield node.name, len([name for name in given if name not in {"self", "cls"}])


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_more_than_three_fields_or_arguments_are_keyword_only(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not [name for name, count, keyword_only in records(tree) if count > MOST and not keyword_only]
    assert not [name for name, count in functions(tree) if count > MOST]
