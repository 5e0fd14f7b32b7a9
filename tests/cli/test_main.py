"""The command line as a whole: help, wrong calls, bugs of ours, and what a command loads."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import infogaze
from infogaze.cli.main import COMMANDS, main, parse
from infogaze.cli.overrides import field_texts
from infogaze.data.options import ReadOptions
from infogaze.errors import InfogazeError
from infogaze.evaluation.registry import MEASUREMENTS
from infogaze.methods.registry import METHODS
from infogaze.presets import PRESETS
from infogaze.training.recipe import RECIPES
from tests.support.calls import one_line, refused, refused_by_parser


def kind_of(name: str) -> Any:
    """The dataclass of a command."""
    return getattr(import_module(f"infogaze.cli.{name}"), name.capitalize())


def texts_of(kind: type) -> dict[str, str]:
    """What is to be said of each option; those of a group are in it by themselves."""
    types = get_type_hints(kind)
    found: dict[str, str] = {}
    for option, text in field_texts(kind).items():
        of = types[option]
        found |= texts_of(of) if is_dataclass(of) and isinstance(of, type) else {option: text}
    return found


def help_of(capsys: pytest.CaptureFixture[str], *call: str) -> str:
    """What help says, in one line."""
    with pytest.raises(SystemExit) as stop:
        main([*call, "--help"])
    assert stop.value.code == 0
    said = capsys.readouterr()
    assert said.err == ""
    return one_line(said.out)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_of_every_command_says_what_each_option_does(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = help_of(capsys, name)
    for option, text in texts_of(kind_of(name)).items():
        assert text, f"{option} has no help"
        assert " ".join(text.split()[:2]) in said


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_of_each_what_its_own_help_begins_with(name: str) -> None:
    assert kind_of(name).__doc__.splitlines()[0] == COMMANDS[name]


def test_help_lists_every_command_and_loads_nothing_that_takes_long() -> None:
    program = "import sys; from infogaze.cli.main import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    for name, line in COMMANDS.items():
        assert re.search(rf"^ *{name} +{re.escape(line)}$", done.stdout, re.MULTILINE)
    assert not {"torch", "numpy", "matplotlib", "sklearn", "scipy", "tyro"} & set(done.stderr.split())


@pytest.mark.parametrize(
    ("name", "registries"),
    [
        ("train", (PRESETS, METHODS, RECIPES)),
        ("sweep", (PRESETS, METHODS, RECIPES, MEASUREMENTS)),
        ("bench", (PRESETS,)),
        ("evaluate", (MEASUREMENTS,)),
    ],
)
def test_help_names_all_that_can_be_chosen(
    name: str, registries: tuple[dict[str, object], ...], capsys: pytest.CaptureFixture[str]
) -> None:
    said = re.sub(r"\s", "", help_of(capsys, name))
    for registry in registries:
        assert "|".join(registry) in said


@pytest.mark.parametrize("preset", ["digits", "cifar10", "own"])
def test_help_shows_the_values_of_the_preset_that_the_call_names(
    preset: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = PRESETS[preset]
    said = help_of(capsys, "train", preset)
    assert f"({preset}: {settings.model.latent_size})" in said
    assert f"({preset}: {' '.join(map(str, settings.model.glimpse_widths))})" in said
    assert f"({settings.recipe}: {RECIPES[settings.recipe].phase1.batch_size})" in said
    assert f"(paper: {RECIPES['paper'].phase1.epochs})" in help_of(capsys, "train", preset, "--recipe", "paper")


def test_wrong_values_are_named_with_those_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused_by_parser(capsys, "look", "--policy", "luck")
    assert all(word in said for word in ("--policy", "luck", "gain", "raster"))
    assert "'many'" in refused_by_parser(capsys, "look", "--budget", "many")
    assert "budget is 0" in refused(capsys, "look", "--budget", "0")
    assert "probability is 2.0" in refused(capsys, "look", "--stop-at", "2")
    assert "num_samples is 0" in refused(capsys, "look", "--num-samples", "0")
    line = refused(capsys, "lok")
    assert "lok" in line
    assert "quickstart" in line
    assert "--out" in refused_by_parser(capsys, "quickstart")
    assert "--nonsense" in refused_by_parser(capsys, "quickstart", "--out", "x", "--nonsense", "1")


ASKED: dict[str, list[str]] = {
    "quickstart": ["--out", "x"],
    "data": ["list"],
    "train": ["digits", "--out", "x"],
    "sweep": ["digits", "--out", "x"],
    "init": ["folder"],
    "calibrate": ["x"],
    "distil": ["x"],
    "score": ["folder", "--out", "x"],
    "gym": ["digits", "--env", "digits"],
    "export": ["digits", "x"],
}
"""What a command cannot do without."""


def options_of(name: str) -> list[str]:
    """The options of a command as they are written in a call."""
    names = [field.name for field in fields(kind_of(name))]
    if name in {"data", "train", "sweep", "score"}:
        names += [f"read.{field.name}" for field in fields(ReadOptions)]
    no_option = {"preset", "image", "runs", "action", "name", "folder", "source"}
    return [f"--{option.replace('_', '-')}" for option in names if option not in no_option]


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"report"}))  # which takes any words
def test_every_option_that_refuses_a_value_names_itself_and_the_value(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refusals = {}
    for option in options_of(name):
        with contextlib.suppress(SystemExit):
            parse([name, *ASKED.get(name, []), option, "no such value"])
            continue
        refusals[option] = one_line(capsys.readouterr().err)
    assert refusals
    for option, said in refusals.items():
        # A switch takes no value, so this one is a word too many.
        assert option in said or "Unrecognized" in said, option
        assert "no such value" in said, option


@pytest.mark.parametrize(
    ("call", "named"),
    [
        ("data list --read.size 32", ("--read.size", "32", "INT INT")),
        ("data list --read.size", ("--read.size",)),
        ("data list --read.channels 2", ("--read.channels", "'2'", "'1'", "'3'")),
        ("look --seed 1.5", ("--seed", "1.5", "INT")),
        ("look --stop-at soon", ("--stop-at", "soon", "FLOAT")),
        ("look --policy", ("--policy",)),
        ("look a b", ("b", "infogaze look --help")),
        ("look --buget 3", ("--buget", "--budget")),
        ("train digits --out x --length half", ("--length", "half", "FLOAT")),
        ("train digits --out x --phases 1 y", ("--phases", "y", "INT")),
        ("train digits --out x --model.glimpse-size big", ("--model.glimpse-size", "big", "INT")),
        ("train digits --out x --recipe.schedule soon", ("--recipe.schedule", "soon", "one-cycle", "plateau")),
        ("train digits --out x --model.hieght 3", ("--model.hieght",)),
        ("train", ("--out PATH",)),
        ("report x y", ("--runs RUN", "y")),
    ],
)
def test_a_call_that_cannot_be_parsed_names_the_option_the_value_and_what_is_allowed(
    call: str, named: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused_by_parser(capsys, *call.split())
    assert all(word in said for word in named), said


@pytest.mark.parametrize(
    ("call", "named"),
    [
        ("", ("no command is given", *COMMANDS)),
        ("lok", ("'lok'", *COMMANDS, "--help", "--version")),
        ("train mnist --out x", ("'mnist'", *PRESETS)),
        ("train digits --out x --recipe slow", ("'slow'", *RECIPES)),
        ("train digits --out x --method guess", ("'guess'", *METHODS)),
        ("train digits --out x --model.stride 0", ("stride is 0", "1")),
        ("train digits --out x --recipe.phase1.batch-size 0", ("phase1", "batch_size is 0")),
        ("train digits --out x --data mnist", ("'mnist'", "digits")),
        ("sweep mnist --out x", ("'mnist'", *PRESETS)),
        ("bench mnist", ("'mnist'", *PRESETS)),
        ("evaluate nowhere --measure luck", ("'luck'", *MEASUREMENTS)),
        ("data check", ("name of a set", "digits")),
        ("data check mnist", ("'mnist'", "digits")),
        ("data check digits --read.size 0 4", ("size is (0, 4)", "1 to 16384")),
        ("data check digits --read.test-share 4", ("test_share is 4.0", "between 0 and 1")),
        ("init nowhere", ("nowhere", "no such folder")),
    ],
)
def test_a_wrong_call_is_answered_in_one_line_that_names_the_value_and_what_is_allowed(
    call: str,
    named: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    line = refused(capsys, *call.split())
    assert all(word in line for word in named), line
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_a_narrow_terminal_breaks_no_value_in_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    path = "/home/" + 10 * "folder/" + "my  picture.png"
    assert path in refused(capsys, "look", path)


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_an_error_is_told_where_no_box_can_be_drawn(encoding: str) -> None:
    program = Path(sys.executable).parent / "infogaze"
    done = subprocess.run(
        [program, "report", "x", "y"],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    assert done.returncode == 2
    assert done.stdout == b""
    said = one_line(done.stderr.decode(encoding))
    assert "--runs" in said
    assert "y" in said.split()


def test_a_bug_of_ours_shows_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    for bug in (ValueError("zip() argument 2 is shorter"), OSError("odd"), RuntimeError("shapes")):

        def broken(self: object, bug: Exception = bug) -> None:
            raise bug

        monkeypatch.setattr(kind_of("data"), "run", broken)
        with pytest.raises(type(bug), match=re.escape(str(bug))):
            main(["data", "list"])


def test_debug_shows_the_traceback_of_what_a_user_can_mend_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert "nowhere" in refused(capsys, "look", "nowhere.png")
    for call in (["--debug", "look", "nowhere.png"], ["look", "nowhere.png", "--debug"]):
        with pytest.raises(InfogazeError, match="nowhere"):
            main(call)


def test_ctrl_c_is_one_line_and_its_own_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(self: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(kind_of("data"), "run", interrupted)
    with pytest.raises(SystemExit) as stop:
        main(["data", "list"])
    assert stop.value.code == 130
    assert capsys.readouterr().err == "infogaze: stopped\n"


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--version"])
    assert capsys.readouterr().out == f"infogaze {infogaze.__version__}\n"


def test_the_installed_command_answers() -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "infogaze", "--help"], capture_output=True, text=True, check=True
    )
    for name in COMMANDS:
        assert name in done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such pipes")
def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    program = Path(sys.executable).parent / "infogaze"
    with subprocess.Popen([program, "data", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait() == 141


@pytest.mark.parametrize("name", ["train", "look", "evaluate", "sweep", "init", "data"])
def test_a_command_begins_without_the_libraries_it_has_no_use_for(name: str) -> None:
    program = f"import sys; import infogaze.cli.{name}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    slow = {"torchvision", "sklearn", "matplotlib"}
    assert not slow & set(done.stdout.split())
