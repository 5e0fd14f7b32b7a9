"""Every value of a preset or a recipe as an option: the option's name is the way to the field, and what is not given stays as it is."""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Collection
from dataclasses import field, fields, is_dataclass, make_dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro

OFF = "off"
"""The extra switch of a record that may be absent: it makes it so."""


def overrides_type(kind: type, values: Any, *, origin: str, leave_out: Collection[str] = ()) -> type:
    """A dataclass with the fields of `kind`, each None unless given. Help says each field's own text, and its value in `origin`."""
    made = []
    hints, texts = get_type_hints(kind), field_texts(kind)
    for name in (one.name for one in fields(kind) if one.name not in leave_out):
        hint, value = hints[name], getattr(values, name, None)
        record = next((part for part in _parts(hint) if is_dataclass(part)), None)
        if isinstance(record, type):
            inner = overrides_type(record, value, origin=origin)
            if type(None) in _parts(hint):
                switch = (OFF, Annotated[bool, tyro.conf.arg(help=f"Without: {texts[name]}")], field(default=False))
                inner = make_dataclass(inner.__name__, [switch], bases=(inner,), frozen=True, kw_only=True)
            made.append((name, Annotated[inner, tyro.conf.arg(help=texts[name])], field(default_factory=inner)))
            continue
        shown = "none" if value is None else " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        option = tyro.conf.arg(help=texts[name], metavar=_metavar(hint), help_behavior_hint=f"({origin}: {shown})")
        made.append((name, Annotated[Union[hint, None], option], field(default=None)))  # noqa: UP007
    return make_dataclass(f"{kind.__name__}Overrides", made, frozen=True, kw_only=True)


def given(overrides: Any) -> dict[str, Any]:
    """What was given, as plain values by field."""
    found: dict[str, Any] = {}
    for one in fields(overrides):
        value = getattr(overrides, one.name)
        if is_dataclass(value) and not isinstance(value, type):
            if getattr(value, OFF, False):
                found[one.name] = None
            elif inner := given(value):
                found[one.name] = inner
        elif value is not None and one.name != OFF:
            found[one.name] = list(value) if isinstance(value, tuple) else value
    return found


@cache
def field_texts(kind: type) -> dict[str, str]:
    """The docstring under each field of a dataclass, in one line; empty where there is none."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body  # type: ignore[attr-defined]
    texts = {}
    for statement, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            texts[statement.target.id] = " ".join(str(after.value.value).split()) if is_text else ""
    return texts


def _parts(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the type itself."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _metavar(hint: Any) -> str:
    kinds = [part for part in _parts(hint) if part is not type(None)]
    return "|".join(_name(kind) for kind in kinds)


def _name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        inner = get_args(kind)
        return f"{_name(inner[0])} [...]" if inner[1:] == (...,) else " ".join(_name(part) for part in inner)
    return "True|False" if kind is bool else str(kind.__name__).upper()


def as_arguments(changes: dict[str, Any], prefix: str = "") -> list[str]:
    """The options that give these changes, as they are written in a call."""
    arguments = []
    for name, value in changes.items():
        option = f"{prefix}{name.replace('_', '-')}"
        if value is None:
            arguments.append(f"--{option}.{OFF}")
        elif isinstance(value, dict):
            arguments += as_arguments(value, f"{option}.")
        else:
            arguments += [f"--{option}", *map(str, value if isinstance(value, list) else [value])]
    return arguments
