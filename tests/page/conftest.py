"""One page and one browser for all tests: both take a while."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

import infogaze
from infogaze.models import make_agent
from infogaze.page.serve import served
from tests.support.pages import ARGUMENTS, Visit, browser_path, runtime

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def paper_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model of the paper's method with the digits' classes, untrained, whose gains differ from place to place."""
    digits = infogaze.load("digits")
    assert digits.origin is not None
    sizes = replace(
        digits.origin.config, glimpse_widths=(8,), feature_size=16, belief_size=32, latent_size=8,
        dictionary_entries=0, gain_correction=False,
    )  # fmt: skip
    model = infogaze.build(sizes, seed=0)
    with torch.no_grad():
        for parameter in model.backbone.get_submodule("classifier").parameters():
            parameter.mul_(6.0)
    origin = infogaze.Origin(method="paper", config=sizes, num_samples=20)
    stop = infogaze.CalibratedStop(
        rule="confidence", thresholds=(None, None, 0.12, None, None, None), budget=7, gap=0.1, delta=0.1, by_look=False, scenes=100
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("models") / "small-paper"
    infogaze.save(
        make_agent(model, digits.classes, origin=origin, num_looks=7, stop=stop), folder, dtype=torch.float16
    )  # as on the page
    return folder


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, paper_folder: Path) -> Path:
    """A page with the digits and the small model, written by the command: where shapes are not checked it exports faster."""
    out = tmp_path_factory.mktemp("page") / "out"
    given = [] if (copy := runtime()) is None else ["--runtime", str(copy)]
    call = [sys.executable, "-m", "infogaze.cli", "page", str(out), "--models", f"digits,{paper_folder}", *given]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="session")
def address(folder: Path) -> Iterator[str]:
    with served(folder) as where:
        yield where


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    executable = browser_path()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=[*ARGUMENTS])
        yield browser
        browser.close()


@pytest.fixture
def visitor(browser: Browser, address: str) -> Iterator[Callable[..., Visit]]:
    """Opens a page, of this address if no other is given, with the options of a browser's context. Errors of a page fail the test."""
    contexts, errors = [], []

    def visit(where: str = address, **options: Any) -> Visit:
        context = browser.new_context(viewport=options.pop("viewport", {"width": 1200, "height": 900}), **options)
        contexts.append(context)
        page = context.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        return Visit(page, where, asked)

    yield visit
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture
def visit(visitor: Callable[..., Visit]) -> Visit:
    """The page, opened."""
    visit = visitor()
    visit.open()
    return visit
