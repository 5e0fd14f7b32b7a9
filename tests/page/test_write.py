"""The page as files: what is in the folder, where the runtime comes from, and what is refused."""

from __future__ import annotations

import hashlib
import io
import json
import re
import stat
import tarfile
import urllib.request
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import infogaze
from infogaze.page import runtime as where
from infogaze.page.pictures import bundled_pictures
from infogaze.page.runtime import RuntimeFile, runtime_files
from infogaze.page.serve import served
from infogaze.plots.style import INK, LINE_STYLES, OURS
from tests.support.calls import refused
from tests.support.paths import ROOT

STATIC = ROOT / "src" / "infogaze" / "page" / "static"
CIFAR = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An unpacked copy of a small package in place of onnxruntime-web, whose digests are the pinned ones."""
    files = []
    for file in where.FILES:
        data = f"the contents of {file.name}".encode()
        path = tmp_path / "package" / file.source
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        files.append(RuntimeFile(source=file.source, name=file.name, sha256=hashlib.sha256(data).hexdigest()))
    monkeypatch.setattr(where, "FILES", tuple(files))
    monkeypatch.setattr("infogaze.page.write.FILES", tuple(files))
    monkeypatch.setenv("INFOGAZE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "package"


def npm(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A program called npm, the only one there is."""
    folder.mkdir()
    program = folder / "npm"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_an_unpacked_copy_is_the_runtime_and_one_that_was_changed_is_refused(package: Path) -> None:
    found = runtime_files(package)
    assert (
        found
        == runtime_files(package.parent)
        == {file.name: f"the contents of {file.name}".encode() for file in where.FILES}
    )
    (package / where.FILES[0].source).write_bytes(b"something else")
    with pytest.raises(infogaze.InfogazeError, match=r"not the file of onnxruntime-web 1\.\S+: its SHA-256"):
        runtime_files(package)
    with pytest.raises(
        infogaze.InfogazeError, match=r"no dist/ort\S+; an unpacked copy of onnxruntime-web 1\.\S+ is needed"
    ):
        runtime_files(package / "dist")


def test_npm_is_asked_once_and_then_the_cache_serves(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tarfile.open(tmp_path / "packed.tgz", "w:gz") as archive:
        archive.add(package, "package")
    # Its last argument is the folder.
    npm(
        tmp_path / "bin",
        monkeypatch,
        f'echo "$@" >> {tmp_path}/calls\nfor last; do :; done\ncp {tmp_path}/packed.tgz "$last/a.tgz"',
    )
    assert runtime_files() == runtime_files() == runtime_files(package)
    (call,) = (tmp_path / "calls").read_text().splitlines()
    assert call.startswith(f"pack {where.PACKAGE}@{where.VERSION} ")


def test_without_npm_or_with_one_that_fails_there_is_one_line(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm(tmp_path / "bin", monkeypatch, "echo 'no such\nhost' >&2; exit 1")
    with pytest.raises(infogaze.InfogazeError, match=r"cannot be fetched by npm: no such host; or give --runtime"):
        runtime_files()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(infogaze.InfogazeError, match="npm is not installed, and fetches onnxruntime-web"):
        runtime_files()


@pytest.mark.slow
def test_a_page_is_written_whole_and_written_over(
    package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from infogaze.cli.main import main

    out = tmp_path / "out"
    main(["page", str(out), "--models", "digits", "--runtime", str(package)])
    said = capsys.readouterr().out
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file() and path.name != "settings.json")
    assert f"{size / 1e6:.1f} MB in {out}" in said
    settings = json.loads((out / "settings.json").read_text())
    (model,) = settings["models"]
    contract = json.loads((out / model["folder"] / "contract.json").read_text())
    assert contract["classes"] == model["classes"] == list(infogaze.load("digits").classes)
    for graph in (*contract["graphs"].values(), contract["weights"]):
        assert (out / model["folder"] / graph["file"]).stat().st_size == graph["bytes"]
    assert set(contract["graphs"]) == {"see", "decide", "imagine", "ask"}
    for picture in settings["pictures"]:
        assert picture["label"] not in picture["name"]
        with Image.open(out / picture["file"]) as image:
            assert image.size == (32, 32)
    assert len(settings["colours"]) == 64
    assert "holds a page already; --overwrite" in refused(
        capsys, "page", out, "--models", "digits", "--runtime", package
    )
    (out / "models" / "old").mkdir()
    opened = []

    def visit(address: str) -> None:
        with urllib.request.urlopen(f"{address}settings.json") as answer:
            opened.append(json.load(answer))
        raise KeyboardInterrupt  # as Ctrl-C does

    monkeypatch.setattr("webbrowser.open", visit)
    with pytest.raises(SystemExit) as stop:
        main(["page", str(out), "--models", "digits", "--runtime", str(package), "--overwrite", "--open"])
    assert stop.value.code == 130
    assert opened == [settings]
    assert [path.name for path in (out / "models").iterdir()] == ["digits"]


@pytest.mark.slow
def test_packed_graphs_say_what_they_said_with_their_weights_in_them(tmp_path: Path) -> None:
    import onnx
    import onnxruntime

    from infogaze.page.pack import packed

    infogaze.export_onnx(infogaze.load("digits"), tmp_path / "whole", precision="float16")
    graphs = {name: onnx.load(tmp_path / "whole" / f"{name}.onnx") for name in ("see", "decide")}
    alone = sum((tmp_path / "whole" / f"{name}.onnx").stat().st_size for name in graphs)
    files, weights = packed(graphs, name="weights.bin")
    assert sum(map(len, files.values())) + len(weights) < alone
    (tmp_path / "weights.bin").write_bytes(weights)
    rng = np.random.default_rng(0)
    for name, data in files.items():
        (tmp_path / f"{name}.onnx").write_bytes(data)
        whole, part = (onnxruntime.InferenceSession(path / f"{name}.onnx") for path in (tmp_path / "whole", tmp_path))
        given = {
            port.name: np.ones((1, *port.shape[1:]), bool)
            if "bool" in port.type
            else rng.random((1, *port.shape[1:]), np.float32)
            for port in whole.get_inputs()
        }
        for expected, found in zip(whole.run(None, given), part.run(None, given), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_what_cannot_be_written_is_refused_in_a_line(
    package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "give --open" in refused(capsys, "page")
    (tmp_path / "file").write_text("")
    assert "a file, and a folder is needed" in refused(capsys, "page", tmp_path / "file")
    assert "holds other files, and no page" in refused(capsys, "page", tmp_path)
    options = ("--runtime", package, "--models")
    assert "a page needs at least one" in refused(capsys, "page", tmp_path / "a", *options, ",")
    assert "two models are called digits" in refused(
        capsys, "page", tmp_path / "a", *options, "digits,elsewhere/digits"
    )
    assert "no such folder" in refused(capsys, "page", tmp_path / "a", *options, "nothing")
    assert not (tmp_path / "a").exists()


def test_pictures_are_those_that_a_model_can_name() -> None:
    assert {picture.label for picture in bundled_pictures(CIFAR)} == CIFAR
    assert {picture.label for picture in bundled_pictures(set("0123456789"))} <= set("0123456789")
    (only,) = bundled_pictures({"dots", "bars"})
    assert only.label == "ship"
    for picture in bundled_pictures(CIFAR):
        assert Image.open(io.BytesIO(picture.data)).size == (128, 128)


@pytest.mark.slow
def test_the_models_can_name_the_pictures() -> None:
    agent = infogaze.load("cifar10-plus")
    pictures = bundled_pictures(CIFAR)
    said = [agent.classify(Image.open(io.BytesIO(picture.data)), seed=0).label for picture in pictures]
    wrong = [picture.label for picture, label in zip(pictures, said, strict=True) if picture.label != label]
    assert len(wrong) <= 1  # drawings are near enough to photographs


class Sources(HTMLParser):
    """All addresses of a page, and what its policy would not run."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in {"src", "href"}:
                self.addresses.append(str(value))
            if name == "style" or name.startswith("on"):
                self.inline.append(f"{tag} {name}")
        if tag == "style" or (tag == "script" and "src" not in dict(attrs)):
            self.inline.append(tag)


def test_the_page_names_its_own_files_alone_and_has_nothing_inline() -> None:
    sources = Sources()
    sources.feed((STATIC / "index.html").read_text())
    assert sources.inline == []
    assert sources.addresses
    assert [address for address in sources.addresses if not (STATIC / address).is_file()] == []
    for path in STATIC.iterdir():
        outside = re.findall(
            r"(?:https?:)?//[\w.]+\.\w+[^\s\"']*", re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.MULTILINE)
        )
        assert [address for address in outside if "www.w3.org" not in address] == [], path.name


def test_a_policy_that_allows_nothing_outside_stands_before_all_that_it_is_for() -> None:
    text = (STATIC / "index.html").read_text()
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    assert found is not None
    rules = {name: values for name, *values in (rule.split() for rule in found[1].split(";"))}
    assert rules.pop("default-src") == ["'none'"]
    allowed = {value for values in rules.values() for value in values}
    assert allowed == {"'self'", "'none'", "'wasm-unsafe-eval'", "blob:"}
    assert [name for name, values in rules.items() if "blob:" in values] == ["worker-src"]
    assert found.start() < min(text.index("<link"), text.index("<script"))


def test_colours_are_those_of_the_figures_and_the_report() -> None:
    from infogaze.report.page import page

    css = (STATIC / "page.css").read_text()
    tokens = {name: (light, dark) for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\)", css)}
    assert tokens["ink"][0] == INK
    assert tokens["ours"][0] == OURS
    assert tokens["paper-method"][0] == LINE_STYLES["paper"].colour
    assert tokens["random"][0] == LINE_STYLES["random"].colour
    report = page("", opening="", sections=(), closing="")
    for name in ("ink", "quiet", "paper", "edge", "link"):
        assert re.findall(rf"--{name}: (#\w+);", report) == list(tokens[name])


@pytest.mark.parametrize("theme", [0, 1])
def test_text_can_be_read_on_what_lies_below_it(theme: int) -> None:
    css = (STATIC / "page.css").read_text()
    tokens = {name: both[theme] for name, *both in re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\)", css)}
    for text, below in (
        ("ink", "paper"), ("ink", "card"), ("quiet", "paper"), ("quiet", "card"), ("quiet", "hidden"), ("link", "paper"),
        ("ours", "paper"), ("on-ours", "ours"), ("bad", "bad-back"), ("paper", "ink"),
    ):  # fmt: skip
        assert contrast(tokens[text], tokens[below]) >= 4.5, (text, below)
    for shape in ("control", "ours", "other", "paper-method", "random", "link"):
        assert contrast(tokens[shape], tokens["paper"]) >= 3.0, shape


def contrast(one: str, other: str) -> float:
    """As the Web Content Accessibility Guidelines define it."""

    def luminance(colour: str) -> float:
        shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_the_server_is_on_loopback_and_ends_with_its_block(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("words")
    (tmp_path / "main.js").write_text("")
    with served(tmp_path) as address:
        assert address.startswith("http://127.0.0.1:")
        for name, kind in (("", "text/html"), ("main.js", "text/javascript")):
            with urllib.request.urlopen(address + name) as answer:
                assert answer.headers["Content-Type"].startswith(kind)
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address)
