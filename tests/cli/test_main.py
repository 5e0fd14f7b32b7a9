from __future__ import annotations

import ast
import inspect
import io
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from PIL import Image

import infogaze
from infogaze.cli.main import COMMANDS, _parse, command, main
from infogaze.cli.refusals import one_line, refusal
from infogaze.data.options import Options
from infogaze.data.reading import in_memory
from infogaze.data.registry import read_set
from infogaze.errors import InfogazeError
from infogaze.gaze.scene import read_scene
from infogaze.methods.registry import METHODS, build_for
from infogaze.presets import PRESETS
from tests.support.tiny import CONFIG, tiny_agent


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a wrong call gets, with exit code 2."""
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("infogaze: ")
    return lines[0]


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path / "picture.png"
    Image.fromarray(rng.integers(0, 255, (40, 60), dtype=np.uint8)).save(path)
    return path


def field_texts(command: Callable[..., object]) -> dict[str, str]:
    """The docstring under each field of a command's dataclass; an empty one where there is none."""
    body = ast.parse(textwrap.dedent(inspect.getsource(command))).body[0].body  # type: ignore[attr-defined]
    texts = {}
    for field, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            texts[field.target.id] = str(after.value.value) if is_text else ""
    return texts


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_of_every_command_says_what_each_option_does(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0
    said = one_line(capsys.readouterr().out)
    for option, text in field_texts(command(name)).items():
        assert text, f"{option} has no help"
        assert " ".join(text.split()[:2]) in said


@pytest.mark.parametrize("name", ["train", "sweep", "bench"])
def test_help_names_every_preset_and_method(name: str) -> None:
    texts = field_texts(command(name))
    for field, allowed in (("preset", PRESETS), ("method", METHODS), ("methods", METHODS)):
        if field in texts:
            given = " ".join(texts[field].split()).partition(": ")[2].removesuffix(".").replace(" or ", ", ")
            assert given.split(", ") == list(allowed)


def test_wrong_values_are_named_with_those_allowed(capsys: pytest.CaptureFixture[str], picture: Path) -> None:
    line = refused(capsys, "look", str(picture), "--policy", "luck")
    assert "luck" in line
    assert "gain" in line
    assert "raster" in line
    assert "'many'" in refused(capsys, "look", str(picture), "--budget", "many")
    assert "budget is 0" in refused(capsys, "look", str(picture), "--budget", "0")
    assert "probability is 2.0" in refused(capsys, "look", str(picture), "--stop-at", "2")
    assert "samples is 0" in refused(capsys, "look", str(picture), "--samples", "0")
    line = refused(capsys, "lok")
    assert "lok" in line
    assert "quickstart" in line
    assert "--out" in refused(capsys, "quickstart")
    assert "--nonsense" in refused(capsys, "quickstart", "--out", "x", "--nonsense", "1")


ASKED: dict[str, list[str]] = {
    "quickstart": ["--out", "x"],
    "data": ["list"],
    "train": ["digits", "--out", "x"],
    "sweep": ["digits", "--out", "x"],
}
"""What a command cannot do without."""


def options_of(name: str) -> list[str]:
    """The options of a command as they are written in a call."""
    kind: Any = command(name)
    names = [field.name for field in fields(kind)] + [f"read.{field.name}" for field in fields(Options)]
    no_option = {"preset", "image", "runs", "action", "name", "read"}
    return [f"--{option.replace('_', '-')}" for option in names if option not in no_option]


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"report"}))  # which takes any words
def test_every_option_that_refuses_a_value_names_itself_the_value_and_what_is_allowed(name: str) -> None:
    lines = {}
    for option in options_of(name):
        try:
            _parse([name, *ASKED.get(name, []), option, "no such value"])
        except ValueError as error:
            lines[option] = str(error)
    # A switch has no value, and not every command reads images.
    refusals = {option: line for option, line in lines.items() if "does not take" not in line}
    assert refusals
    for option, line in refusals.items():
        assert line.startswith(f"{option} is 'no such value'; it must be ")
        assert not set("{}<>[]") & set(line)


@pytest.mark.parametrize(
    ("call", "line"),
    [
        ("data list --read.size 32", "--read.size is '32'; it must be two whole numbers or None"),
        ("data list --read.size", "--read.size is empty; it must be two whole numbers or None"),
        ("data list --read.size 0 4", "--read.size is (0, 4); it must be a height and a width of 1 to 16384 pixels"),
        ("data list --read.test-share 4", "--read.test-share is 4.0; it must be between 0 and 1"),
        ("data list --read.channels 2", "--read.channels is '2'; it must be one of 1, 3, None"),
        ("look --seed 1.5", "--seed is '1.5'; it must be a whole number"),
        ("look --stop-at soon", "--stop-at is 'soon'; it must be a number or None"),
        ("look --policy", "--policy needs a value; see `infogaze look --help`"),
        ("look a b", "infogaze look does not take b; see `infogaze look --help`"),
        (
            "look --buget 3",
            "infogaze look does not take --buget, 3; perhaps --budget is meant; see `infogaze look --help`",
        ),
        ("train digits --out x --length half", "--length is 'half'; it must be a number"),
        ("train digits --out x --phases 1 y", "--phases is '1', 'y'; it must be whole numbers or None"),
        (
            "train mnist --out x",
            "preset is 'mnist'; it must be one of svhn, cifar10, cifar10-plus, cinic10, cifar100, tinyimagenet, digits",
        ),
        ("train", "infogaze train needs PRESET, --out PATH; see `infogaze train --help`"),
        (
            "report x y",
            "infogaze report needs --runs RUN [RUN ...] and does not take y; see `infogaze report --help`",
        ),
        ("", f"no command is given; there are {', '.join(COMMANDS)}"),
        ("lok", f"no command is called 'lok'; there are {', '.join(COMMANDS)}, and --help and --version"),
    ],
)
def test_a_wrong_call_is_answered_in_one_clean_line(call: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, *call.split()) == f"infogaze: {line}"


def test_a_narrow_terminal_breaks_no_value_in_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    path = "/home/" + 30 * "folder/" + "my  picture.png"
    assert f"infogaze look does not take {path}; " in refused(capsys, "look", "a", path)
    assert os.environ["COLUMNS"] == "40"


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_an_error_is_told_alike_where_no_box_can_be_drawn(
    encoding: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding))
    line = "infogaze report needs --runs RUN [RUN ...] and does not take y; see `infogaze report --help`"
    assert refused(capsys, "report", "x", "y") == f"infogaze: {line}"


def test_an_error_of_a_kind_not_known_is_told_in_the_parsers_words() -> None:
    assert (
        refusal("╭─ Odd ──╮\n│ \x1b[1mTwo\x1b[0m   │\n│ lines. │\n╰────────╯\n", "infogaze look") == "Odd: Two lines."
    )


def test_a_bug_of_ours_shows_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    for bug in (ValueError("zip() argument 2 is shorter"), OSError("odd"), RuntimeError("shapes")):

        def broken(self: object, bug: Exception = bug) -> None:
            raise bug

        monkeypatch.setattr(command("data"), "run", broken)
        with pytest.raises(type(bug), match=str(bug).replace("(", r"\(").replace(")", r"\)")):
            main(["data", "list"])


def test_debug_shows_the_traceback_of_what_a_user_can_mend_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert "nowhere" in refused(capsys, "look", "nowhere.png")
    for call in (["--debug", "look", "nowhere.png"], ["look", "nowhere.png", "--debug"]):
        with pytest.raises(InfogazeError, match="nowhere"):
            main(call)


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--version"])
    assert capsys.readouterr().out == f"infogaze {infogaze.__version__}\n"


def test_look_refuses_what_is_no_picture(capsys: pytest.CaptureFixture[str], tmp_path: Path, picture: Path) -> None:
    text = tmp_path / "notes.png"
    text.write_text("no picture")
    assert "notes.png: is no image" in refused(capsys, "look", str(text))
    half = tmp_path / "half.png"
    half.write_bytes(picture.read_bytes()[:200])
    assert "half.png: is damaged" in refused(capsys, "look", str(half))
    empty = tmp_path / "empty.jpg"
    empty.write_bytes(b"")
    assert "empty.jpg: is an empty file" in refused(capsys, "look", str(empty))
    assert "nowhere.png: is missing" in refused(capsys, "look", str(tmp_path / "nowhere.png"))
    assert "is a folder, not an image" in refused(capsys, "look", str(tmp_path))
    small = tmp_path / "small.png"
    Image.new("L", (20, 7)).save(small)
    assert "small.png: 7x20 pixels, smaller than a glimpse of 8x8" in refused(capsys, "look", str(small))
    floats = tmp_path / "floats.tiff"
    Image.new("F", (40, 40)).save(floats)
    assert "floats.tiff: has pixels of mode F" in refused(capsys, "look", str(floats))
    assert "no such folder" in refused(capsys, "look", str(picture), "--model", str(tmp_path / "no-model"))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I", "I;16"])
@pytest.mark.parametrize("size", [(8, 8), (500, 300), (31, 97)])
def test_look_takes_pictures_of_any_mode_and_size(mode: str, size: tuple[int, int], tmp_path: Path) -> None:
    path = tmp_path / ("picture.tiff" if mode in {"CMYK", "YCbCr", "I"} else "picture.png")
    values = np.random.default_rng(1).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    source = Image.fromarray(values)
    (source.convert("L").convert("I").convert("I;16") if mode == "I;16" else source.convert(mode)).save(path)
    main(["look", str(path), "--out", str(tmp_path / "seen.png"), "--budget", "2", "--samples", "2"])
    with Image.open(tmp_path / "seen.png") as drawn:
        assert drawn.size[0] > 300


@pytest.mark.parametrize("ending", ["png", "jpg", "webp"])
def test_look_prints_a_line_a_look_and_draws_the_rollout(
    ending: str, tmp_path: Path, picture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"other.{ending}"
    with Image.open(picture) as opened:
        opened.save(path)
    out = tmp_path / "new" / "seen.png"
    main(["look", str(path), "--out", str(out), "--budget", "3", "--samples", "2", "--model", "digits"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["0", "1", "2"]
    assert "% of the scene" in lines[-1]
    with Image.open(out) as drawn:
        assert drawn.format == "PNG"


def test_look_opens_a_folder_and_fits_the_picture_to_its_scenes(tmp_path: Path, picture: Path) -> None:
    infogaze.save(tiny_agent(replace(CONFIG, channels=3)), tmp_path / "model")
    main(["look", str(picture), "--model", str(tmp_path / "model"), "--out", str(tmp_path / "seen.png")])
    assert (tmp_path / "seen.png").stat().st_size > 1000


def deep(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 65536, (40, 60), dtype=np.uint16)


def transparent(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 256, (40, 60, 4), dtype=np.uint8)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("drawn", [deep, transparent])
def test_look_and_a_set_read_the_same_pixels(
    drawn: Callable[[np.random.Generator], np.ndarray], channels: Literal[1, 3], tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    for name in ("one/a", "one/b", "other/a", "other/b"):
        path = tmp_path / "set" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(drawn(rng)).save(path)
    agent = tiny_agent(replace(CONFIG, channels=channels))
    grid = agent.model.grid
    options = Options(size=(grid.height, grid.width), fit="crop", channels=channels, test_share=0.5)
    pictures = in_memory(read_set("folder", tmp_path / "set", options))
    in_the_set = sorted(pictures.train.images.tolist() + pictures.test.images.tolist())
    looked_at = [read_scene(path, agent).tolist() for path in (tmp_path / "set").rglob("*.png")]
    assert sorted(looked_at) == in_the_set


def test_a_sideways_photograph_is_turned_upright(tmp_path: Path) -> None:
    agent = infogaze.load("digits")
    upright = Image.new("L", (64, 64))
    upright.paste(255, (0, 0, 64, 32))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned a quarter to the left
    sideways = io.BytesIO()
    upright.rotate(90).save(sideways, "png", exif=exif)
    (tmp_path / "photo.png").write_bytes(sideways.getvalue())
    scene = read_scene(tmp_path / "photo.png", agent)
    assert scene[0, :12].float().mean() > 240
    assert scene[0, 20:].float().mean() < 15


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


def test_a_command_begins_without_the_libraries_it_has_no_use_for() -> None:
    program = "import sys; from infogaze.cli.main import command; command('train'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    slow = {"torchvision", "sklearn", "matplotlib"}
    assert not slow & set(done.stdout.split())


@pytest.mark.parametrize("method", ["ram", "discriminative", "cnn"])
def test_look_chooses_as_the_models_own_method_does(
    method: str, tmp_path: Path, picture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = infogaze.preset("digits").model
    names = [str(digit) for digit in range(10)]
    infogaze.save(infogaze.Agent(build_for(method, sizes), names, config=sizes, method=method), tmp_path / "model")
    asked = ["look", str(picture), "--model", str(tmp_path / "model"), "--out", str(tmp_path / "look.png")]
    main(asked)
    assert (tmp_path / "look.png").exists()
    capsys.readouterr()
    line = refused(capsys, *asked, "--policy", "gain")
    assert f"a model by {method} imagines nothing; own, random or raster is allowed" in line


def test_look_takes_in_every_look_mirrored_too_where_it_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = []
    for options in (["--no-twin"], ["--twin"], []):
        main(["look", "--out", str(tmp_path / "look.png"), *options])
        told.append([line.split() for line in capsys.readouterr().out.splitlines()[1:-1]])
    alone, twin, as_saved = told
    assert [line[:3] for line in alone] == [line[:3] for line in twin], "looks are at the same places"
    assert alone[0] != twin[0], "and tell something else"
    assert as_saved == twin, "cifar10-plus has it on"


def test_look_without_a_picture_looks_at_the_sample_with_the_bundled_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["look", "--seed", "3", "--out", str(tmp_path / "look.png")])
    assert (tmp_path / "look.png").exists()
    assert capsys.readouterr().out.splitlines()[-1].startswith("ship, from ")
