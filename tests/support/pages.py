"""A page in a real browser, and what an episode on it must agree with: the same episode in Python."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image

from infogaze import Agent, Policy
from infogaze.errors import InfogazeError
from infogaze.gaze.classification import scene_of
from infogaze.page.runtime import runtime_files

if TYPE_CHECKING:
    from playwright.sync_api import Page

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-background-networking",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
)
PATIENCE = 600.0
"""Seconds; a page that does not come to what is waited for by then never does."""
_PLAYERS = """() => infogaze.players.map((player) => ({
  who: player.who,
  looks: player.episode.state.looks.map((look) => look.place),
  gains: player.episode.state.looks.map((look) => look.plan?.gain ? Array.from(look.plan.gain) : null),
  answers: player.episode.states.map((state) => state.answers),
  ended: player.episode.endedBy,
  why: player.episode.why,
  unusual: player.episode.unusual,
}))"""


def browser_path() -> str:
    """Where Chromium is."""
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    return found or lacking("no chromium is installed (.ci/browser installs it)")


def runtime() -> Path | None:
    """None, as the cache has onnxruntime-web now; tests that need it are skipped where npm cannot fetch it."""
    try:
        runtime_files()
    except InfogazeError as error:
        lacking(str(error))
    return None


def lacking(what: str) -> Any:
    """Skip for a reason, or fail where a browser is required."""
    if os.environ.get("INFOGAZE_BROWSER") == "required":
        pytest.fail(f"INFOGAZE_BROWSER is 'required', but: {what}")
    pytest.skip(what)


@dataclass(frozen=True)
class Visit:
    """A page that is open, where it is served, and all it asked for."""

    page: Page
    address: str
    asked: list[str]
    """Addresses."""

    def until(self, expression: str) -> None:
        """Wait until an expression is true. The page's policy allows no evaluation by itself, so it is asked again and again."""
        end = time.monotonic() + PATIENCE
        while not self.page.evaluate(expression):
            if time.monotonic() > end:
                said = self.page.locator("body").inner_text()
                raise AssertionError(f"never true: {expression}; the page says: {said[:600]}")
            self.page.wait_for_timeout(20)

    def settled(self) -> None:
        """Wait until every player knows where it looks next, or is done, and nothing is under way."""
        self.until(
            "globalThis.infogaze?.players.length > 0 && infogaze.replay.length === 0 && !infogaze.busy"
            " && infogaze.players.every((player) => player.plan || player.episode.done)"
        )

    def open(self, link: str = "") -> None:
        """Load the page, at a link, and wait for the model."""
        self.page.goto("about:blank")
        self.page.goto(self.address + link)
        self.settled()

    def step(self) -> None:
        """Press the button, and wait."""
        self.page.locator("#step").click()
        self.settled()

    def finish(self) -> None:
        """Press it until it is over."""
        while not self.page.locator("#step").is_disabled():
            self.step()

    def look_at(self, place: int) -> None:
        """Click a place, and wait."""
        self.page.locator(".cells button").nth(place).click()
        self.settled()

    def says(self) -> str:
        """The sentence about what happened last."""
        return self.page.locator("#says").inner_text()

    def trouble(self) -> str:
        """The sentence about what went wrong."""
        where = self.page.locator("#trouble")
        where.wait_for(state="visible")
        return where.inner_text()

    def players(self) -> dict[str, dict[str, Any]]:
        """What each player did: looks, the gain maps that chose them, and the probabilities before and after every look."""
        return {player["who"]: player for player in self.page.evaluate(_PLAYERS)}


def require_equal(
    played: Mapping[str, Any],
    agent: Agent,
    picture: Path | Image.Image,
    *,
    seed: int = 0,
    policy: Policy | None = None,
    own: Sequence[int] = (),
) -> None:
    """An episode on the page is that of Python: each look the one that Python would take, up to rounding; and so the probabilities.

    `own` are the numbers of looks that the visitor chose.
    """
    assert agent.origin is not None
    grid = agent.model.grid
    scene = scene_of(picture, grid, channels=agent.origin.config.channels, fit=agent.fit)
    locations = grid.locations()
    first = agent.episode(seed=seed).next_location()
    episode = agent.episode(seed=seed, first=first[0], policy=policy)
    for number, place in enumerate(played["looks"]):
        episode.next_location()
        if number not in own:
            if episode.has_map:
                gain = episode.next_gain.flatten()
                scale = float(gain.abs().max())
                apart = np.abs(np.array(played["gains"][number]) - gain.numpy()) > 2e-3 * scale + 1e-6
                # Of entries of a dictionary that are as likely, rounding may take another one.
                assert apart.sum() <= 2, (number, played["gains"][number], gain)
                left = gain.masked_fill(~episode.candidates.flatten(), -torch.inf)
                assert float(left[place]) >= float(left.max()) - (5e-2 if apart.any() else 2e-3) * scale
            else:
                assert locations[place].tolist() == episode.next_location()[0].tolist()
        row, col = locations[place].tolist()
        side = grid.glimpse_size
        episode.observe(scene[None, :, row : row + side, col : col + side], at=locations[place])
        np.testing.assert_allclose(played["answers"][number + 1], episode.probabilities[0], atol=1e-3)
        assert int(np.argmax(played["answers"][number + 1])) == int(episode.probabilities.argmax())
    assert bool(episode.out_of_distribution[0]) == played["unusual"]
