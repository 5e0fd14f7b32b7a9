"""The report as a user gets it: a page that needs nothing else, figures as files, refusals in one line."""

from __future__ import annotations

import csv
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from scipy import stats

from infogaze.cli.main import main
from infogaze.evaluation.comparing import recipe_digest
from infogaze.evaluation.judged import Judged
from infogaze.methods.registry import METHODS
from infogaze.report.contents import ENTRIES
from infogaze.report.gather import gather
from infogaze.report.write import write_report
from infogaze.training.recipe import RECIPES
from tests.support.evaluations import LOOKS, MadeUp, write_run

ORACLE = "oracle (not deployable)"


class Page(HTMLParser):
    """What a page holds; a tag that is not closed, or closed out of turn, is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.images: list[dict[str, str | None]] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.tags: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        self.anchors.add(found.get("id") or "")
        if tag == "img":
            self.images.append(found)
        if tag == "a":
            self.links.append(found.get("href") or "")
        if tag not in {"img", "meta"}:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


@pytest.fixture(scope="session")
def report(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of all runs, with pictures small enough to be quick."""
    out = tmp_path_factory.mktemp("report") / "new"
    done: list[int] = []
    write_report(out, gather([runs]), lambda: done.append(1), dpi=40)
    assert len(done) == len(ENTRIES)
    return out


def test_the_page_needs_nothing_from_elsewhere(report: Path) -> None:
    text = (report / "index.html").read_text()
    page = Page(text)
    assert not re.search(r"""(src|href|url)\s*[=(]\s*["']?\s*(https?:)?//""", text)
    assert "script" not in page.tags
    assert "link" not in page.tags
    assert all((image["src"] or "").startswith("data:image/png;base64,") for image in page.images)
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_every_image_has_alt_text_and_every_link_leads_somewhere(report: Path) -> None:
    page = Page((report / "index.html").read_text())
    assert len(page.images) >= 20
    assert all(len(image["alt"] or "") > 20 for image in page.images)
    for link in page.links:
        assert link[1:] in page.anchors if link.startswith("#") else (report / link).is_file(), link
    assert sum(link.startswith("#") for link in page.links) == len(ENTRIES) - 1, "all but self-attention can be drawn"


def test_every_figure_is_there_as_png_svg_and_csv(report: Path) -> None:
    files = sorted((report / "figures").iterdir())
    stems = {path.stem for path in files}
    assert len(files) == 3 * len(stems)
    for entry in ENTRIES:
        drawn = [stem for stem in stems if stem.startswith(f"shapes-{entry.number:02d}-{entry.name}")]
        assert bool(drawn) == (entry.name != "attention"), entry
    for path in files:
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")
            assert path.stat().st_size < 150_000
        if path.suffix == ".svg":
            text = path.read_text()
            assert "<text" in text, "text stays text"
            assert not re.search(r"href=\"https?:", text)
        if path.suffix == ".csv":
            head, *rows = list(csv.reader(path.read_text().splitlines()))
            assert rows
            assert {len(row) for row in rows} == {len(head)}, path


def test_what_is_left_out_is_listed_with_the_command_that_would_produce_it(report: Path) -> None:
    text = (report / "index.html").read_text()
    left_out = text[text.index("Left out") :]
    assert "<td>With and without self-attention</td>" in left_out
    assert "<code>infogaze train PRESET --method attention --out RUN</code>" in left_out
    assert "Left out" not in text[: text.index("Robustness to", text.index("<main>"))]


def test_the_title_says_what_the_page_is_of_and_no_heading_has_a_number_that_could_jump(report: Path) -> None:
    text = (report / "index.html").read_text()
    assert "<title>How well 7 methods look: shapes</title>" in text
    headings = re.findall(r"<h3>(.*?)</h3>", text)
    assert headings[0] == 'Accuracy by look <span class="of">the paper\'s figures 2a to 2e, 9b</span>'
    assert "Calibration by look" in headings, "the paper has no such figure"
    assert not [heading for heading in headings if re.match(r"\d", heading)]


def test_every_method_is_explained_before_the_first_figure_with_what_it_reaches(report: Path) -> None:
    text = (report / "index.html").read_text()
    opening = text[text.index("<h2>shapes</h2>") : text.index("<figure>")]
    columns, *rows = (re.findall(r"<t[hd]>(.*?)</t[hd]>", line) for line in re.findall(r"<tr>(.*?)</tr>", opening))
    assert columns == ["method", "what it is", "accuracy after 2 looks", "accuracy after 7 looks", "seeds"]
    found = {row[0]: row[1:] for row in rows}
    assert list(found) == ["infogaze", "paper-corrected", "gaussian-corrected", "ram", "random", ORACLE, "cnn"]
    assert all(found[name][0] == METHODS[name.removesuffix(" (not deployable)")].summary for name in found)
    assert found["ram"][1].startswith(f"{100 * 26.5 / 60:.1f}&nbsp;% (")
    assert found["cnn"][1:] == ["", "95.0&nbsp;% (86.3 to 98.3)", "1"], "it has one look, at everything"


def test_a_method_of_ones_own_can_be_in_a_report(tmp_path: Path) -> None:
    run = write_run(tmp_path, MadeUp("random"), method="raster")
    write_report(tmp_path / "out", gather([run]), lambda: None, dpi=30)
    assert "<td>raster</td><td>not one of the package</td>" in (tmp_path / "out" / "index.html").read_text()


def test_intervals_of_two_seeds_are_explained_where_there_are_any(report: Path, tmp_path: Path) -> None:
    explained = "Student&#x27;s interval is then 12.7 standard errors to either side"
    assert explained in (report / "index.html").read_text()
    assert round(float(stats.t.ppf(0.975, 1)), 1) == 12.7
    runs = [write_run(tmp_path, MadeUp("random", seed)) for seed in (0, 1, 2)]
    write_report(tmp_path / "out", gather(runs), lambda: None, dpi=30)
    assert explained not in (tmp_path / "out" / "index.html").read_text()


def test_the_page_states_where_its_numbers_come_from(report: Path, runs: Path) -> None:
    text = (report / "index.html").read_text()
    origin = text[text.index("Where these numbers come from") :]
    for folder in runs.iterdir():
        assert str(folder) in origin
    for word in ("torch 2.11.0", "cpu", "d1ge57", "60"):
        assert word in origin
    assert "60 test scenes of 16x16 pixels in 3 classes; 7 looks of 8x8 pixels" in text


def test_the_preset_stands_at_the_head_or_with_the_names_where_there_are_several(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, MadeUp("random"), preset="small"), write_run(tmp_path, MadeUp("ram"), preset="small")]
    write_report(tmp_path / "one", gather(runs), lambda: None, dpi=30)
    assert "all methods. Networks are those of the preset small." in (tmp_path / "one" / "index.html").read_text()
    runs.append(write_run(tmp_path, MadeUp("random"), preset="large"))
    write_report(tmp_path / "two", gather(runs), lambda: None, dpi=30)
    text = (tmp_path / "two" / "index.html").read_text()
    assert "Networks are those" not in text
    assert "random (large)" in text


@pytest.mark.parametrize(
    ("fit", "how"),
    [
        ("resize", "stretched to this size with Lanczos."),
        ("crop", "scaled with Lanczos and cut to this size."),
        ("pad", "scaled with Lanczos and given black bars to this size."),
        ("", None),
    ],
)
def test_what_was_done_to_images_of_another_size_stands_at_the_head(fit: str, how: str | None, tmp_path: Path) -> None:
    run = write_run(tmp_path, MadeUp("random"), fit=fit)
    write_report(tmp_path / "out", gather([run]), lambda: None, dpi=30)
    text = (tmp_path / "out" / "index.html").read_text()
    opening = text[text.index("test scenes of") : text.index("Accuracy by look", text.index("test scenes of"))]
    assert ("another size" in opening) == (how is not None)
    assert how is None or f". Where the set&#x27;s images have another size, they were {how}" in opening


def test_flip_tta_that_all_use_is_stated_once(tmp_path: Path) -> None:
    methods = ("infogaze", "random", "cnn")
    runs = [write_run(tmp_path, MadeUp(name, parts=()), flip_tta=name != "cnn") for name in methods]
    write_report(tmp_path / "out", gather(runs), lambda: None, dpi=30)
    text = (tmp_path / "out" / "index.html").read_text()
    assert "All methods use horizontal-flip test-time augmentation" in text
    assert "infogaze is 20.0 points ahead of" in text


def test_flip_tta_and_how_each_run_was_trained_are_stated_wherever_they_are_compared(tmp_path: Path) -> None:
    ours = write_run(tmp_path, MadeUp("paper-corrected"), flip_tta=True, recipe="c0ffee", val_fraction=0.1)
    flat = write_run(tmp_path, MadeUp("gaussian-corrected"), flip_tta=True, recipe="c0ffee", val_fraction=0.1)
    other = write_run(tmp_path, MadeUp("random"), recipe=recipe_digest("random", RECIPES["fast"]))
    write_report(tmp_path / "out", gather([ours, flat, other]), lambda: None, dpi=30)
    text = (tmp_path / "out" / "index.html").read_text()
    names = "paper-corrected (flip TTA) and gaussian-corrected (flip TTA)"
    assert f"{names} use horizontal-flip test-time augmentation; the others do not." in text
    assert "paper-corrected (flip TTA) is 18.3 points ahead of the baseline random" in text
    for path in sorted((tmp_path / "out" / "figures").glob("*.csv")):
        head, *rows = list(csv.reader(path.read_text().splitlines()))
        if "method" in head:
            methods = {row[head.index("method")] for row in rows}
            assert "paper-corrected (flip TTA)" in methods, path
            assert "paper-corrected" not in methods, path
    origin = text[text.index("Where these numbers come from") :]
    columns, *rows = (re.findall(r"<t[hd]>(.*?)</t[hd]>", line) for line in re.findall(r"<tr>(.*?)</tr>", origin))
    found = {row[0]: dict(zip(columns, row, strict=True)) for row in rows}
    assert [found[name]["flip TTA"] for name in ("paper-corrected", "random")] == ["yes", "no"]
    assert found["paper-corrected"]["recipe"] == "custom c0ffee"
    assert found["random"]["recipe"].startswith("fast ")
    assert [found[name]["validation split"] for name in ("paper-corrected", "random")] == ["10&nbsp;%", "0&nbsp;%"]
    assert "d1ge57" in found["all"]["versions"]


def test_several_image_sets_are_chapters_and_an_older_figure_does_not_stay(tmp_path: Path) -> None:
    few = [write_run(tmp_path, MadeUp("infogaze", parts=())), write_run(tmp_path, MadeUp("random", parts=(Judged,)))]
    few.append(write_run(tmp_path, MadeUp("cnn", parts=()), data="let<t>ers", test="another"))
    (tmp_path / "out" / "figures").mkdir(parents=True)
    stale = tmp_path / "out" / "figures" / "shapes-15-sample-counts.png"
    kept = tmp_path / "out" / "figures" / "shapes-15-sample-counts-of-mine.png"
    for path in (stale, kept):
        path.write_bytes(b"older")
    write_report(tmp_path / "out", gather(few), lambda: None, dpi=30)
    assert not stale.exists()
    assert kept.exists()
    text = (tmp_path / "out" / "index.html").read_text()
    page = Page(text)
    assert "t" not in page.tags
    assert text.index("<h2>let&lt;t&gt;ers</h2>") < text.index("<h2>shapes</h2>")
    assert "no run of infogaze" in text


def test_the_command_writes_the_report_and_prints_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infogaze.report.write.ENTRIES", ENTRIES[:1])
    run = write_run(tmp_path, MadeUp("infogaze", parts=()))
    main(["report", str(tmp_path / "out"), "--runs", str(run)])
    assert str(tmp_path / "out" / "index.html") in capsys.readouterr().out
    written = tmp_path / "out" / "figures" / "shapes-01-accuracy.csv"
    rows = list(csv.reader(written.read_text().splitlines()))
    shown = [float(row[4]) for row in rows if row[:2] == ["accuracy, %", "infogaze"]]
    assert len(shown) == LOOKS
    assert shown[1] == pytest.approx(100 * 40 / 60, abs=1e-3)


def test_refusals_are_one_line_with_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = write_run(tmp_path / "a", MadeUp("infogaze", parts=()))
    other = write_run(tmp_path / "b", MadeUp("random", parts=()), test="other")
    damaged = write_run(tmp_path / "c", MadeUp("random", parts=()))
    records = damaged / "evaluation" / "records.safetensors"
    records.write_bytes(records.read_bytes()[:-1])
    for folders, reason in (
        ([one, other], "cannot be compared: another test set"),
        ([tmp_path / "nowhere"], "no such folder"),
        ([damaged], "records.safetensors: damaged or truncated"),
        ([], "no runs given"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["report", str(tmp_path / "out"), "--runs", *(str(folder) for folder in folders)])
        assert stop.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("infogaze: ")
        assert reason in line
