"""What `import infogaze` gives, and what it does not load."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module

import pytest

import infogaze
from tests.support.paths import ROOT

HEAVY = {"torch", "numpy", "matplotlib", "sklearn", "scipy", "torchvision", "tyro", "rich"}


def loaded_by(program: str) -> set[str]:
    """The modules that a fresh interpreter has after these lines."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{program}\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("name", infogaze.__all__)
def test_every_public_name_is_there(name: str) -> None:
    value = getattr(infogaze, name)
    assert getattr(infogaze, name) is value
    home = getattr(value, "__module__", "infogaze")
    if isinstance(value, type) or callable(value):
        assert getattr(import_module(home), name) is value, "it is the one of its own module"


def test_the_public_names_are_listed_and_no_others_are_promised() -> None:
    assert dir(infogaze) == sorted(infogaze.__all__)
    assert set(infogaze._HOME_OF) | {"__version__"} == set(infogaze.__all__)
    assert len(set(infogaze.__all__)) == len(infogaze.__all__)


def test_every_public_name_has_its_entry_in_the_api_page_once() -> None:
    entries = re.findall(r"^::: infogaze\.(\w+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    assert sorted(entries) == sorted(set(infogaze.__all__) - {"__version__"})


def test_a_name_that_there_is_not_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'infogaze' has no attribute 'nonsense'"):
        _ = infogaze.nonsense


def test_importing_the_package_loads_nothing_that_takes_long() -> None:
    loaded = loaded_by("import infogaze")
    assert not HEAVY & loaded
    assert {name for name in loaded if name.startswith("infogaze")} == {"infogaze", "infogaze.version"}


def test_a_program_that_looks_waits_for_no_training_evaluation_or_drawing() -> None:
    loaded = loaded_by("import infogaze\ninfogaze.load('digits')")
    assert "torch" in loaded
    assert not {"matplotlib", "sklearn", "scipy.stats", "torchvision", "tyro"} & loaded
    rooms = (
        "infogaze.tasks",
        "infogaze.evaluation",
        "infogaze.report",
        "infogaze.cli",
        "infogaze.sweep",
        "infogaze.plots",
    )
    assert not {name for name in loaded if name.startswith(rooms)}
    assert not {"infogaze.training.loop", "infogaze.training.step", "infogaze.data.registry"} & loaded


def test_loading_a_model_does_not_load_the_compiler_of_torch() -> None:
    of_torch = loaded_by("import torch")
    loaded = loaded_by("import infogaze\nfor name in ('digits', 'cifar10', 'svhn'): infogaze.load(name)")
    assert "infogaze.nn.posterior" in loaded
    assert not {"sympy", "torch._dynamo", "torch._inductor"} & (loaded - of_torch)


def test_training_and_evaluating_from_python_are_what_the_commands_call() -> None:
    for name in ("train", "evaluate", "score"):
        assert getattr(infogaze, name) is vars(import_module(f"infogaze.cli.{name}"))[name]
