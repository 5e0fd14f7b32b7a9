"""Records as plain values and back: nothing is lost, nothing unknown is taken, and what is wrong is named with the way to it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from infogaze import PRESETS, RECIPES, Preset, Recipe
from infogaze.data.options import ReadOptions
from infogaze.errors import InfogazeError
from infogaze.runs import DataChoice, RunConfig
from infogaze.training.recipe import PhaseRecipe
from infogaze.typed import from_plain, override, to_plain
from tests.support.small_run import configuration


@dataclass(frozen=True)
class Inner:
    count: int
    share: float = 0.5


@dataclass(frozen=True, kw_only=True)
class Outer:
    """A field of every type that records of ours have."""

    inner: Inner
    maybe: Inner | None = None
    flag: bool = False
    name: str = "a"
    place: Path = Path("here")
    kind: Literal["one", "two"] = "one"
    number: Literal[1, 3] | None = None
    pair: tuple[int, float] = (1, 2.0)
    names: tuple[str, ...] = ()
    table: dict[str, int] | None = None


FULL = Outer(
    inner=Inner(3, 0.25), maybe=Inner(4), flag=True, name="b", place=Path("/there/x"), kind="two", number=3,
    pair=(7, 1e-3), names=("x", "y"), table={"k": 1},
)  # fmt: skip


def through_json(record: Any) -> Any:
    return from_plain(type(record), json.loads(json.dumps(to_plain(record))))


@pytest.mark.parametrize("record", [FULL, Outer(inner=Inner(0))], ids=["full", "defaults"])
def test_a_record_comes_back_through_json_as_it_was(record: Outer) -> None:
    assert through_json(record) == record


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_comes_back(name: str) -> None:
    assert through_json(PRESETS[name]) == PRESETS[name]


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_comes_back(name: str) -> None:
    assert through_json(RECIPES[name]) == RECIPES[name]


@pytest.mark.parametrize("method", ["infogaze", "cnn"])
def test_a_run_configuration_comes_back(method: str) -> None:
    options = ReadOptions(size=(20, 30), fit="pad", channels=1, test_share=0.3)
    config = replace(
        configuration(method, val_fraction=0.1), data=DataChoice("folder", "/pictures", options), start_from="model"
    )
    assert through_json(config) == config


def test_plain_values_are_what_json_and_toml_have() -> None:
    plain = to_plain(FULL)
    assert plain["names"] == ["x", "y"]
    assert plain["place"] == "/there/x"
    assert plain["maybe"] == {"count": 4, "share": 0.5}
    assert json.loads(json.dumps(plain)) == plain


def test_a_whole_number_will_do_for_a_number_and_is_one_then() -> None:
    made = from_plain(Inner, {"count": 3, "share": 1})
    assert made == Inner(3, 1.0)
    assert isinstance(made.share, float)


def plain_with(way: str, value: Any) -> dict[str, Any]:
    """The plain values of a full record with another one at the end of a way."""
    plain: dict[str, Any] = to_plain(FULL)
    *outer, last = way.split(".")
    inner = plain
    for name in outer:
        inner = inner[name]
    inner[last] = value
    return plain


@pytest.mark.parametrize(
    ("way", "value", "allowed"),
    [
        ("inner.count", "3", "a whole number"),
        ("inner.count", 3.0, "a whole number"),
        ("inner.count", True, "a whole number"),
        ("inner.count", None, "a whole number"),
        ("inner.share", "0.5", "a number"),
        ("inner.share", False, "a number"),
        ("inner.share", float("nan"), "finite"),
        ("inner.share", float("inf"), "finite"),
        ("maybe.count", [], "a whole number"),
        ("inner", [], "a table"),
        ("inner", 3, "a table"),
        ("maybe", "none", "a table"),
        ("flag", 1, "true or false"),
        ("flag", "yes", "true or false"),
        ("name", 3, "a string"),
        ("place", 3, "a string"),
        ("kind", "three", "one, two"),
        ("number", 2, "1, 3"),
        ("number", True, "1, 3"),
        ("number", 1.0, "1, 3"),
        ("pair", 3, "a list"),
        ("pair", [1, 2.0, 3.0], "a list of 2"),
        ("names", "xy", "a list"),
        ("table", {"k": "1"}, "a whole number"),
        ("table", [], "a table"),
    ],
)
def test_a_value_of_another_type_is_named_with_its_way_and_what_is_allowed(way: str, value: Any, allowed: str) -> None:
    with pytest.raises(InfogazeError) as caught:
        from_plain(Outer, plain_with(way, value))
    said = str(caught.value)
    assert "\n" not in said
    assert way in said
    assert allowed in said
    if not isinstance(value, dict):
        assert repr(value) in said


def test_values_in_lists_are_of_their_type_too() -> None:
    for way, value in (("pair", [1.5, 2.0]), ("names", ["x", 3])):
        with pytest.raises(InfogazeError, match=rf"{way}.* is {value[0] if way == 'pair' else value[1]}"):
            from_plain(Outer, plain_with(way, value))


def test_a_long_value_is_not_repeated_in_full() -> None:
    with pytest.raises(InfogazeError) as caught:
        from_plain(Outer, plain_with("name", [0] * 10_000))
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("way", ["inner.colour", "maybe.colour", "colour"])
def test_an_unknown_field_is_named_with_those_there_are(way: str) -> None:
    with pytest.raises(InfogazeError, match="colour") as caught:
        from_plain(Outer, plain_with(way, "red"))
    assert ("kind" if way == "colour" else "share") in str(caught.value)
    assert way.rpartition(".")[0] in str(caught.value)


def test_a_missing_field_is_named_with_its_way() -> None:
    with pytest.raises(InfogazeError, match="inner is missing"):
        from_plain(Outer, {})
    with pytest.raises(InfogazeError, match=r"inner\.count is missing"):
        from_plain(Outer, {"inner": {"share": 0.5}})


def test_all_that_is_wrong_is_said_in_one_line() -> None:
    with pytest.raises(InfogazeError) as caught:
        from_plain(Outer, {**plain_with("inner.count", "many"), "flag": 3, "colour": "red"})
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in ("inner.count", "flag", "colour"))


def test_what_a_record_itself_refuses_is_named_with_its_way() -> None:
    plain = to_plain(RECIPES["own"])
    plain["phase2"]["batch_size"] = 0
    with pytest.raises(InfogazeError, match=r"phase2: .*batch_size is 0"):
        from_plain(Recipe, plain)


@pytest.mark.parametrize("value", [None, 3, "text", [], [{}]])
def test_what_is_no_table_is_no_record(value: Any) -> None:
    with pytest.raises(InfogazeError, match="a table"):
        from_plain(RunConfig, value)


def test_deep_nesting_is_refused_and_not_a_crash() -> None:
    deep: Any = 0
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InfogazeError, match="height") as caught:
        override(PRESETS["own"], {"model": {"height": deep}})
    assert "\n" not in str(caught.value)


def test_an_override_changes_what_it_names_and_nothing_else() -> None:
    before = PRESETS["own"]
    after = override(before, {"beta": 3, "model": {"stride": 2, "glimpse_widths": [8, 8]}})
    assert after == replace(before, beta=3.0, model=replace(before.model, stride=2, glimpse_widths=(8, 8)))
    assert override(before, {}) == before
    assert isinstance(after, Preset)


def test_an_override_of_a_record_that_may_be_absent_takes_it_away_or_makes_it() -> None:
    assert override(FULL, {"maybe": None}).maybe is None
    assert override(FULL, {"maybe": {"share": 0.1}}).maybe == Inner(4, 0.1)
    assert override(Outer(inner=Inner(0)), {"maybe": {"count": 9}}).maybe == Inner(9)
    with pytest.raises(InfogazeError, match=r"maybe\.count is missing"):
        override(Outer(inner=Inner(0)), {"maybe": {"share": 0.1}})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"phase1": {"batch_size": "64"}}, "phase1.batch_size is '64'"),
        ({"phase1": {"size": 64}}, "size"),
        ({"phase4": {"epochs": 1}}, "phase4"),
        ({"phase1": 3}, "phase1 is 3"),
        ({"augmentation": {"flip": "no"}}, "augmentation.flip is 'no'"),
    ],
)
def test_an_override_that_does_not_fit_is_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InfogazeError) as caught:
        override(RECIPES["own"], changes)
    assert named in str(caught.value)


def test_a_phase_counts_epochs_or_steps_and_not_both() -> None:
    for given in ({}, {"epochs": 1.0, "steps": 3}):
        with pytest.raises(InfogazeError, match="one of the two"):
            from_plain(PhaseRecipe, {**given, "batch_size": 4})
