"""What README and docs say is so: options, links, and tables of what the registries hold; and they are short and in the field's words."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
import torch

from infogaze import METHODS, PRESETS, RECIPES, ModelConfig, load
from infogaze.cli.main import COMMANDS, main
from infogaze.evaluation.corruptions import CORRUPTIONS
from infogaze.evaluation.registry import MEASUREMENTS
from infogaze.report.contents import ENTRIES
from infogaze.training.recipe import PhaseRecipe, Recipe
from tests.support.docs import PAGES
from tests.support.paths import ROOT

CARDS = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "src").rglob("MODEL_CARD.md"))]
OTHERS = ["RESULTS.md", "CONTRIBUTING.md", "SECURITY.md", "recipes/README.md", "benchmarks/README.md"]
ALL = [*PAGES, *OTHERS, *CARDS]
SCRIPTS = [
    str(path.relative_to(ROOT)) for path in sorted((ROOT / "recipes").rglob("*")) if path.suffix in {".sh", ".slurm", ".py"}
]  # fmt: skip
OF_OTHER_PROGRAMS = {"--cov", "--nproc-per-node", "--standalone", "--max-restarts", "--exclude-editable"}
"""Of torchrun and pip."""
FORMER = re.compile(
    r"\bhindsight|\btwins?\b|(held|hold)[ -]out|\brivals?\b|named right|\bdisturb|\bhonest|\bwander|\brecognis|--measure samples\b",
    re.IGNORECASE,
)
"""Words from before STYLE.md's table."""


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def prose(text: str) -> list[str]:
    """The lines that are neither code nor a table nor a picture."""
    lines = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE).splitlines()
    return [line for line in lines if not line.lstrip().startswith(("|", "![", "<!--"))]


@cache
def known_options() -> frozenset[str]:
    """All that any command's help names."""
    found: set[str] = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "400")
        for command in COMMANDS:
            found |= options_in(_help(command))
    return frozenset(found | {"--debug", "--version"})


def _help(command: str) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    return said.getvalue()


def options_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9.-]*[a-z0-9]", text))


def without_former(text: str) -> str:
    """Without the table of former names, whose head says so."""
    return re.sub(r"^\| here \| former name \|$.*?^$", "", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", [*ALL, *SCRIPTS])
def test_every_option_that_is_named_is_one_of_a_command(page: str) -> None:
    text = without_former(text_of(page))
    if page.endswith(".slurm"):
        text = "\n".join(line for line in text.splitlines() if "infogaze " in line)
    assert options_in(text) - OF_OTHER_PROGRAMS - known_options() == set()


def test_options_are_read_off_help_and_pages_as_they_stand_there() -> None:
    known = known_options()
    assert {"--model.glimpse-size", "--recipe.phase1.steps", "--no-flip-tta", "--val-fraction", "--help"} <= known
    assert not {"--hold-out", "--scenes", "--no-such-option"} & known
    assert options_in("`--read.size 32 32`, --no-flip-tta. <!-- a note --> |---|---| a--b") == {
        "--read.size",
        "--no-flip-tta",
    }


def broken_links(page: str, text: str) -> list[str]:
    """Links to files of the repository that are not there, or to headings that their page has not."""
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", link):
            continue
        name, _, heading = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        if not target.exists() or (heading and heading not in headings(text if not name else target.read_text())):
            wrong.append(link)
    return wrong


def headings(text: str) -> set[str]:
    """As GitHub makes links of them."""
    found = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in found}


@pytest.mark.parametrize("page", [*ALL, "LOG.md"])
def test_links_lead_to_files_and_headings_that_are_there(page: str) -> None:
    assert broken_links(page, text_of(page)) == []


def test_a_broken_link_is_noticed() -> None:
    text = "# A page\n[a](docs/model.md) [b](docs/nothing.md) [c](docs/model.md#nothing) [d](#a-page) [e](https://example.org)"
    assert broken_links("README.md", text) == ["docs/nothing.md", "docs/model.md#nothing"]


def linked_from(page: str) -> set[str]:
    """The pages that a page links to."""
    links = re.findall(r"\]\(([^)#\s]+\.md)", text_of(page))
    return {os.path.normpath(Path(page).parent / link) for link in links if "://" not in link}


def test_every_page_of_docs_can_be_reached_from_the_readme() -> None:
    reached, last = set[str](), {"README.md"}
    while last - reached:
        reached |= last
        last = {link for page in last for link in linked_from(page)}
    assert set(PAGES) <= reached


def test_every_number_of_the_results_in_short_stands_on_a_page_of_theirs_in_a_row_of_the_same_name() -> None:
    full: dict[str, set[str]] = {}
    for page in (page for page in PAGES if page.startswith("docs/results-")):
        for line in text_of(page).splitlines():
            name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            full.setdefault(name, set()).update(cells)
    in_short = [line for line in text_of("RESULTS.md").splitlines() if re.match(r"\| `[\w-]+`.*\d\]", line)]
    assert len(in_short) > 20
    for line in in_short:
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        assert set(cells) - {""} <= full[name], line


def test_the_readme_has_at_most_600_words() -> None:
    assert len(text_of("README.md").split()) <= 600


@pytest.mark.parametrize("page", ALL)
def test_no_line_of_prose_is_longer_than_120_characters(page: str) -> None:
    assert [line for line in prose(text_of(page)) if len(line) > 120] == []


def test_tables_code_and_pictures_are_no_prose() -> None:
    text = "Words.\n\n```sh\ninfogaze\n```\n\n| a | table |\n![a picture](a.png)\n- a list\n"
    assert [line for line in prose(text) if line] == ["Words.", "- a list"]


@pytest.mark.parametrize("page", ALL)
def test_pages_use_the_words_of_the_field(page: str) -> None:
    assert former_words(text_of(page)) == []


def former_words(text: str) -> list[str]:
    """The lines that have one; where links lead does not count."""
    said = re.sub(r"\]\([^)]*\)", "]", without_former(text))
    return [line for line in said.splitlines() if FORMER.search(line)]


def test_a_former_word_is_noticed_but_in_a_link_or_in_the_table_that_explains_it() -> None:
    text = "A [map](figures/14-honesty.png).\n\n| here | former name |\n|---|---|\n| flip TTA | twin |\n\nA twin.\nHeld out.\n"
    assert former_words(text) == ["A twin.", "Held out."]


def rows(page: str, heading: str, number: int = 0) -> list[list[str]]:
    """The cells of a table under a heading, without its head; code marks are left out."""
    section = re.split(rf"^#+ {re.escape(heading)}$", text_of(page), flags=re.MULTILINE)[1]
    section = re.split(r"^#+ ", section, flags=re.MULTILINE)[0]
    table = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)[number]
    return [[cell.strip() for cell in line.strip("|").replace("`", "").split("|")] for line in table.splitlines()[2:]]


def rate(value: float | None) -> str:
    return "the preset's" if value is None else f"{value:.0e}".replace("e-0", "e-")


def several(values: Sequence[object]) -> str:
    """Values in a row; one of them where all are the same."""
    return str(values[0]) if len(set(values)) == 1 else ", ".join(map(str, values))


def length(*phases: PhaseRecipe) -> str:
    values = [f"{phase.epochs if phase.steps is None else phase.steps:g}" for phase in phases]
    unit = "steps" if phases[0].steps is not None else "epochs" if values != ["1"] else "epoch"
    return f"{', '.join(values)} {unit}"


def lengths_of(name: str, recipe: Recipe) -> list[str]:
    phases = (recipe.phase1, recipe.phase2, recipe.phase3)
    cnn = f"{length(recipe.full_image)}, batch {recipe.full_image.batch_size}"
    own = recipe.full_image.learning_rate
    return [
        name,
        length(*phases),
        several([phase.batch_size for phase in phases]),
        several([rate(phase.learning_rate) for phase in phases]),
        cnn if own is None else f"{cnn}, {rate(own)}",
    ]


def ways_of(name: str, recipe: Recipe) -> list[str]:
    jitter = recipe.augmentation
    if jitter is not None:
        assert jitter.brightness == jitter.contrast == jitter.saturation
    return [
        name,
        recipe.schedule,
        f"{recipe.betas[0]:g}, {recipe.betas[1]:g}; {recipe.weight_decay:g}",
        f"{recipe.ema_decay:g}" if recipe.ema_decay else "none",
        f"{recipe.kl_warmup:g} of phase 2" if recipe.kl_warmup else "none",
        str(recipe.num_samples),
        recipe.precision,
        "none" if jitter is None else f"crop, flip, jitter {jitter.brightness:g}",
    ]


def test_the_tables_of_recipes_have_their_values() -> None:
    assert rows("docs/training.md", "Recipes", 0) == [lengths_of(*one) for one in RECIPES.items()]
    assert rows("docs/training.md", "Recipes", 1) == [ways_of(*one) for one in RECIPES.items()]
    clipped = {name: recipe.grad_clip for name, recipe in RECIPES.items()}
    assert clipped == {name: 0.0 if name == "paper" else 1000.0 for name in RECIPES}, "the page says so"


def test_the_table_of_presets_has_their_values() -> None:
    stated = {cells[0].removesuffix(" (ours)"): cells[1:] for cells in rows("docs/model.md", "Presets")}
    assert set(stated) == set(PRESETS)
    for name, preset in PRESETS.items():
        sizes, grid = preset.model, preset.model.grid
        scene, glimpse, places, *others = stated[name][:-1]
        if name != "own":
            assert scene == f"{sizes.channels}x{sizes.height}x{sizes.width}"
            assert places == f"{grid.rows}x{grid.cols}"
        assert glimpse == f"{sizes.glimpse_size}, {sizes.stride}"
        assert others == [
            str(len(sizes.glimpse_widths)),
            f"{sizes.feature_size}, {sizes.belief_size}, {sizes.latent_size}",
            str(sizes.flow_layers),
            str(sizes.dictionary_entries),
            f"{preset.beta:g}",
            str(preset.num_samples),
            preset.recipe,
        ]
        assert preset.num_looks == (10 if name == "cluttered" else 7)
        assert preset.num_entries == 64
        assert stated[name][-1] == ", ".join(millions_of_parameters(method, sizes) for method in ("infogaze", "paper"))


def millions_of_parameters(method: str, sizes: ModelConfig) -> str:
    with torch.device("meta"):
        model = METHODS[method].build(METHODS[method].sizes(sizes))
    count = sum(value.numel() for value in model.parameters()) / 1e6
    return f"{count:.{2 if count < 100 else 3}g} M"


def test_the_table_of_methods_names_all_with_their_phases() -> None:
    stated = {cells[0]: cells[-1] for cells in rows("docs/methods.md", "Methods")}
    assert list(stated) == list(METHODS)
    for name, phases in stated.items():
        assert phases.removesuffix(" (complete images)").split(", ") == [phase.name for phase in METHODS[name].phases]


def test_the_table_of_methods_says_what_each_imagines_with_and_whether_its_gain_is_corrected() -> None:
    for name, _, _, trained, _ in rows("docs/methods.md", "Methods"):
        parts, method = trained.split(", "), METHODS[name]
        assert ({"S", "D"} <= set(parts)) == (method.imagination == "vae"), name
        assert ("dictionary" in parts) == (method.imagination == "dictionary"), name
        assert ("correction" in parts) == bool(method.overrides.get("gain_correction")), name


def methods_in(page: str, beginning: str) -> set[str]:
    """The methods that a paragraph names up to its first full stop."""
    (found,) = re.findall(rf"^{re.escape(beginning)}[^.]*\.", text_of(page), re.MULTILINE)
    return set(re.findall(r"`([\w-]+)`", found))


def test_the_pages_name_all_methods_that_imagine_and_all_whose_gain_is_corrected() -> None:
    imagining = {name for name, method in METHODS.items() if method.imagines}
    corrected = {name for name, method in METHODS.items() if method.overrides.get("gain_correction")}
    assert methods_in("docs/report.md", "Figures 15 and 17 show") == imagining
    assert methods_in("docs/report.md", "`discriminative`, ") == corrected | {"discriminative"}
    stated = methods_in("docs/model.md", "In phase 3 it is seen how far each look lowers the loss. So ")
    assert stated == corrected | {"gain_correction"}


@pytest.mark.parametrize("page", [*ALL, *SCRIPTS])
def test_every_recipe_that_is_named_is_there(page: str) -> None:
    named = re.findall(r"\brecipes/[\w/-]+\.(?:sh|slurm|py)\b", text_of(page))
    assert [path for path in named if not (ROOT / path).is_file()] == []


@pytest.mark.parametrize("page", CARDS)
def test_a_card_names_the_method_of_its_model(page: str) -> None:
    agent = load((ROOT / page).parent)
    assert agent.origin is not None
    assert f"method `{agent.origin.method}`" in text_of(page)


def test_the_tables_of_evaluation_name_all_measurements_and_corruptions() -> None:
    assert [cells[0] for cells in rows("docs/evaluation.md", "What is measured", 0)] == list(MEASUREMENTS)
    severities = {cells[0]: cells[1] for cells in rows("docs/evaluation.md", "What is measured", 1)}
    assert severities == {name: ", ".join(f"{x:g}" for x in kind.severities) for name, kind in CORRUPTIONS.items()}


def test_the_table_of_figures_is_that_of_the_report() -> None:
    stated = [(int(cells[0]), cells[1], cells[2]) for cells in rows("docs/report.md", "The figures")]
    assert stated == [(entry.number, entry.title, entry.paper) for entry in ENTRIES]
