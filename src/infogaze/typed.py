"""Records to plain values, as JSON and TOML have them, and back: every field of its own type, nothing unknown, nothing silently changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import cattrs
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError, IterableValidationError
from cattrs.gen import make_dict_structure_fn, mapping_structure_factory

from infogaze.errors import InfogazeError

T = TypeVar("T")

_LONG = 60  # letters of a value that a message repeats

_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}


class _Wrong(Exception):
    """A value of another type than its field's."""


def to_plain(record: Any) -> Any:
    """The record as dictionaries, lists, strings, numbers and None."""
    return _CONVERTER.unstructure(record)


def from_plain(kind: type[T], value: Any) -> T:
    """The record that these values describe; InfogazeError names the field, what it holds and what is allowed."""
    try:
        return _CONVERTER.structure(value, kind)
    except (ClassValidationError, IterableValidationError) as error:
        raise InfogazeError("; ".join(_faults(error, ""))) from None
    except (_Wrong, InfogazeError, TypeError, RecursionError) as error:
        raise InfogazeError(_said(error, "")) from None


def override(record: T, changes: Mapping[str, Any]) -> T:
    """The record with some fields changed, given as plain values; a field that is a record itself is changed within."""
    return from_plain(type(record), _merged(to_plain(record), changes))


def _merged(plain: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(plain) if isinstance(plain, dict) else {}
    for name, value in changes.items():
        inner = merged.get(name)
        within = isinstance(value, Mapping) and (inner is None or isinstance(inner, dict))
        merged[name] = _merged(inner, value) if within else value
    return merged


def _faults(error: BaseException, where: str) -> list[str]:
    """One line a field, with the way to it."""
    if isinstance(error, ClassValidationError):
        named, others = error.group_exceptions()
        found = [line for inner, note in named for line in _faults(inner, f"{where}.{note.name}".lstrip("."))]
        return found + [line for inner in others for line in _faults(inner, where)]
    if isinstance(error, IterableValidationError):
        placed, others = error.group_exceptions()
        found = [line for inner, note in placed for line in _faults(inner, f"{where}[{note.index}]")]
        return found + [line for inner in others for line in _faults(inner, where)]
    return [_said(error, where)]


def _said(error: BaseException, where: str) -> str:
    if isinstance(error, ForbiddenExtraKeysError):
        known = ", ".join(field.name for field in fields(error.cl))
        return f"{where + ' has ' if where else ''}no field {', '.join(sorted(error.extra_fields))}; there are {known}"
    if isinstance(error, KeyError):
        return f"{where} is missing"
    words = " ".join(str(error).split())
    if isinstance(error, _Wrong):
        return f"{where or 'it'} {words}"
    return f"{where}: {words}" if where else words


def _strictly(kind: type) -> Callable[[Any, Any], Any]:
    def structure(value: Any, _: Any) -> Any:
        # A whole number is a number; true and false are neither.
        fits = isinstance(value, (int, float) if kind is float else kind)
        if not fits or (kind is not bool and isinstance(value, bool)):
            raise _wrong(value, _NAMES[kind])
        if kind is float and not math.isfinite(value):
            raise _wrong(value, "finite")
        return kind(value)

    return structure


def _wrong(value: Any, allowed: str) -> _Wrong:
    given = repr(value)
    return _Wrong(f"is {given if len(given) <= _LONG else given[:_LONG] + '...'}; it must be {allowed}")


def _one_of(value: Any, kind: Any) -> Any:
    allowed = get_args(kind)
    # Not by `in`: 1 is equal to True.
    if not any(type(value) is type(one) and value == one for one in allowed):
        raise _wrong(value, f"one of {', '.join(map(str, allowed))}")
    return value


def _tuple(value: Any, kind: Any) -> Any:
    parts = get_args(kind)
    if not isinstance(value, list | tuple):
        raise _wrong(value, "a list")
    if parts[1:] == (...,):
        parts = (parts[0],) * len(value)
    if len(value) != len(parts):
        raise _wrong(value, f"a list of {len(parts)}")
    return tuple(_CONVERTER.structure(one, part) for one, part in zip(value, parts, strict=True))


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind in (bool, int, float, str):
        converter.register_structure_hook(kind, _strictly(kind))
    converter.register_structure_hook(Path, lambda value, _: Path(_strictly(str)(value, str)))
    converter.register_unstructure_hook(Path, str)
    converter.register_structure_hook_func(_is(Literal), _one_of)
    converter.register_structure_hook_func(_is(tuple), _tuple)
    converter.register_unstructure_hook_func(_is(tuple), lambda value: [converter.unstructure(one) for one in value])
    for is_kind, make in ((is_dataclass, make_dict_structure_fn), (_is(dict), None)):
        converter.register_structure_hook_factory(is_kind, partial(_of_table, converter=converter, make=make))
    return converter


def _is(origin: Any) -> Callable[[Any], bool]:
    return lambda kind: get_origin(kind) is origin


def _of_table(kind: Any, converter: cattrs.Converter, make: Any) -> Callable[[Any, Any], Any]:
    """A record or a dictionary, from a dictionary and nothing else."""
    build = (
        mapping_structure_factory(kind, converter)
        if make is None
        else make(kind, converter, _cattrs_forbid_extra_keys=True)
    )

    def structure(value: Any, _: Any) -> Any:
        if not isinstance(value, dict):
            raise _wrong(value, "a table of fields")
        return build(value, kind)

    return structure


_CONVERTER = _converter()
