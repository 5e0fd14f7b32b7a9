"""Every snippet of README and docs is run, or read, as it stands there."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import torch
from PIL import Image

import infogaze
from tests.support.docs import (
    LESSONS,
    PAGES,
    RUN_HERE,
    Block,
    SnippetError,
    World,
    blocks_of,
    command_lines,
    sets_up,
    small_worlds,
)
from tests.support.paths import ROOT

BLOCKS = [block for page in PAGES for block in blocks_of(page)]
SLOW = re.compile(r"torchrun|infogaze report|sweep digits")
MODULES_OF = {"gym": ("gym", "ap_gym")}
"""Of an adapter that has several."""
NAMES_OF_IMPORTS = {
    "pillow": "PIL",
    "scikit-learn": "sklearn",
    "bluesky-adaptive": "bluesky_adaptive",
    "pymmcore-plus": "pymmcore_plus",
    "useq-schema": "useq",
}


def case(block: Block) -> object:
    """A block as a parameter, with its marks."""
    marks = []
    if block.language == "sh" and SLOW.search(block.text):
        marks.append(pytest.mark.slow)
    if block.language == "python" and "cuda" in block.text:
        marks += [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
    return pytest.param(block, marks=marks, id=f"{block.page}-{block.number}-{block.language}")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], World]]:
    with small_worlds(tmp_path_factory.mktemp("docs")) as worlds:
        yield worlds


@pytest.mark.parametrize("block", [case(block) for block in BLOCKS if block.page not in LESSONS])
def test_a_snippet_runs_as_it_stands(block: Block, world: Callable[[str], World]) -> None:
    world(block.page).run(block)


@pytest.mark.slow
@pytest.mark.parametrize("page", LESSONS)
def test_a_tutorial_runs_from_its_first_block_to_its_last_and_makes_its_pictures(
    page: str, world: Callable[[str], World]
) -> None:
    text = (ROOT / page).read_text()
    try:
        world(page).lesson(blocks_of(page))
    finally:
        plt.close("all")
    shown = re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)
    assert shown, "a tutorial shows what it makes"
    for name in shown:
        made, committed = world(page).folder / name, ROOT / Path(page).parent / name
        with Image.open(made) as new, Image.open(committed) as old:
            assert new.size == old.size, f"{name} is not the picture that the page's blocks make"


def test_every_block_is_in_a_language_that_is_run() -> None:
    assert [str(block) for block in BLOCKS if block.language not in RUN_HERE] == []
    for page in PAGES:
        assert len(re.findall("^ *```", (ROOT / page).read_text(), re.MULTILINE)) == 2 * len(blocks_of(page)), page
    assert {"docs/training.md", "docs/model.md", "README.md"} <= {block.page for block in BLOCKS}


def test_two_commands_set_up_an_environment_and_both_are_in_the_readme() -> None:
    """They are left out here: CI runs the one of the tests, and the tests of quickstart do what the other does."""
    found = [
        (block.page, words[-1]) for block in BLOCKS if block.language == "sh" for words in command_lines(block) if sets_up(words)
    ]  # fmt: skip
    assert found == [("README.md", "first-run"), ("README.md", ".venv/bin/pytest")]


WRONG = {
    "an option that is none": ("sh", "infogaze look --no-such-option"),
    "a folder that is not there": ("sh", "infogaze train own --root NOWHERE --out RUN"),
    "a method that is none": ("sh", "infogaze sweep cifar10 --root DATA --methods nobody --out SWEEP"),
    "a command that is none": ("sh", "infogaze paint"),
    "another program": ("sh", "cp PICTURE OTHER"),
    "the second line": ("sh", "infogaze data list\ninfogaze data check nothing"),
    "a name that is not exported": ("python", "import infogaze\ninfogaze.NoSuchName"),
    "an argument that is none": ("python", 'import infogaze\ninfogaze.load("digits", speed=2)'),
    "what does not compile": ("python", "import infogaze as"),
    "what is no TOML": ("toml", "num_looks ="),
    "a setting that is none": ("toml", "looks = 5"),
    "a size that is none": ("toml", "[model]\nglimpse = 8"),
    "a value of another type": ("toml", '[recipe.phase1]\nsteps = "many"'),
    "a way to read that is none": ("toml", '[read]\nfit = "squeeze"'),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_error_in_a_snippet_is_noticed_and_the_block_named(wrong: str, world: Callable[[str], World]) -> None:
    language, text = WRONG[wrong]
    (block,) = blocks_of("a page", f"Words.\n\n```{language}\n{text}\n```\n")
    with pytest.raises(SnippetError, match=r"^a page, block 1 \("):
        world("wrong").run(block)


def test_a_training_whose_process_fails_is_noticed(world: Callable[[str], World]) -> None:
    (block,) = blocks_of("a page", "```sh\ntorchrun --nproc-per-node 1 -m infogaze.no_such_module\n```\n")
    with pytest.raises(SnippetError, match="no_such_module"):
        world("wrong").run(block)


def foreign_imports(block: Block) -> list[str]:
    """What a block imports that its reader cannot count on: anything of infogaze but its list, and what it does not depend on.

    The page of an adapter may import that adapter, and what its extra installs.
    """
    wrong, adapter = [], re.sub(r"docs/adapters/(\w+)\.md", r"\1", block.page)
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom):
            module, names = str(node.module), [name.name for name in node.names]
        elif isinstance(node, ast.Import):
            module, names = node.names[0].name, []
        else:
            continue
        root = module.split(".")[0]
        if module in {f"infogaze.adapters.{name}" for name in MODULES_OF.get(adapter, (adapter,))}:
            continue
        if root == "infogaze":
            wrong += [module] if module != "infogaze" else [name for name in names if name not in infogaze.__all__]
        elif root not in sys.stdlib_module_names and root not in _dependencies(adapter):
            wrong.append(module)
    return wrong


def _dependencies(extra: str) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [*project["dependencies"], *project["optional-dependencies"].get(extra, [])]
    names = [re.split(r"[^\w-]", line)[0] for line in listed]
    return {NAMES_OF_IMPORTS.get(name, name.replace("-", "_")) for name in names}


def test_docs_import_nothing_of_infogaze_but_its_list() -> None:
    python = [block for block in BLOCKS if block.language == "python"]
    assert python
    assert {str(block): wrong for block in python if (wrong := foreign_imports(block))} == {}


@pytest.mark.parametrize(
    "text",
    ["from infogaze.nn.model import Model", "import infogaze.cli", "from infogaze import NoSuchName", "import pandas"],
)
def test_an_import_from_inside_is_noticed(text: str) -> None:
    for page in ("a page", "docs/adapters/bluesky.md"):
        (block,) = blocks_of(page, f"```python\n{text}\n```\n")
        assert foreign_imports(block)


def test_the_page_of_an_adapter_imports_what_its_extra_installs_and_no_other_adapter() -> None:
    own, other = (
        "from infogaze.adapters.bluesky import scan\nimport ophyd",
        "import infogaze.adapters.micromanager\nimport useq",
    )
    for text, wrong in ((own, []), (other, ["infogaze.adapters.micromanager", "useq"])):
        (block,) = blocks_of("docs/adapters/bluesky.md", f"```python\n{text}\n```\n")
        assert foreign_imports(block) == wrong
