"""The page in a real Chromium: whole episodes are those of Python, and whatever a visitor does is answered."""

# ruff: noqa: RUF001 (the page writes signs as print does)

from __future__ import annotations

import io
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
import torch
from PIL import Image

import infogaze
from infogaze import RandomPolicy
from infogaze.page.pictures import bundled_pictures
from infogaze.page.serve import served
from infogaze.page.write import write_page
from infogaze.rng import SceneNoise, scene_seeds
from tests.support.pages import Visit, require_equal, runtime
from tests.support.sets import noise

if TYPE_CHECKING:
    from playwright.sync_api import Route

pytestmark = pytest.mark.slow

TOUCH = {"viewport": {"width": 375, "height": 740}, "has_touch": True, "is_mobile": True}


@pytest.fixture
def digit() -> Image.Image:
    """The page's first picture."""
    return Image.open(io.BytesIO(bundled_pictures(set("0123456789"))[0].data))


def link_of(visit: Visit) -> dict[str, list[str]]:
    return parse_qs(urlsplit(visit.page.url).fragment)


def picture(size: tuple[int, int] = (60, 45), channels: int = 3) -> bytes:
    """A PNG file of noise, of this height and width."""
    pixels = noise(5, *size, channels)
    out = io.BytesIO()
    Image.fromarray(pixels[..., 0] if channels == 1 else pixels).save(out, "PNG")
    return out.getvalue()


def drop(visit: Visit, data: bytes, name: str) -> None:
    """Let a file fall on the page."""
    transfer = visit.page.evaluate_handle(
        """([bytes, name]) => {
          const transfer = new DataTransfer();
          transfer.items.add(new File([new Uint8Array(bytes)], name));
          return transfer;
        }""",
        [list(data), name],
    )
    visit.page.dispatch_event("body", "dragover", {"dataTransfer": transfer})
    visit.page.dispatch_event("body", "drop", {"dataTransfer": transfer})


@pytest.mark.parametrize("seed", [0, 7, 2**40 + 3])
def test_the_random_numbers_are_those_of_python(visit: Visit, seed: int) -> None:
    found = visit.page.evaluate(
        """async (seed) => {
          const noise = await import(new URL("noise.js", document.baseURI));
          const scene = noise.sceneSeed(seed);
          return [0, 3].map((look) => [Array.from(noise.uniform(scene, look, 300)), Array.from(noise.normal(scene, look, 300))]);
        }""",
        str(seed),
    )
    for look, (uniform, normal) in zip((0, 3), found, strict=True):
        numbers = SceneNoise(scene_seeds(seed, 1), look)
        assert torch.tensor([uniform]).equal(numbers.uniform(300))
        torch.testing.assert_close(torch.tensor([normal]), numbers.normal(300), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("fit", ["crop", "resize", "pad"])
@pytest.mark.parametrize(("size", "channels"), [((60, 45), 3), ((33, 100), 1), ((32, 32), 3), ((20, 24), 3)])
def test_a_picture_becomes_the_scene_that_python_makes_of_it(
    visit: Visit, fit: str, size: tuple[int, int], channels: int
) -> None:
    from infogaze.pictures import fit_picture, pixels_of

    data = picture(size, channels)
    for wanted in (1, 3):
        found = visit.page.evaluate(
            """async ([bytes, wanted, fit]) => {
              const { decode, sceneOf } = await import(new URL("picture.js", document.baseURI));
              const { Grid } = await import(new URL("grid.js", document.baseURI));
              const grid = new Grid({ rows: [0, 20], cols: [0, 18], height: 28, width: 26, channels: wanted, glimpse_size: 8 });
              return Array.from(sceneOf(await decode(new Blob([new Uint8Array(bytes)])), grid, fit));
            }""",
            [list(data), wanted, fit],
        )
        image = Image.open(io.BytesIO(data))
        expected = fit_picture(pixels_of(image, wanted), (28, 26), fit)  # type: ignore[arg-type]
        np.testing.assert_array_equal(np.array(found).reshape(wanted, 28, 26), expected)


@pytest.mark.parametrize("seed", [0, 12])
def test_a_whole_episode_is_that_of_python(visit: Visit, digit: Image.Image, seed: int) -> None:
    visit.open(f"#seed={seed}")
    visit.finish()
    (played,) = visit.players().values()
    assert len(played["looks"]) == 7
    assert played["ended"] == "budget"
    require_equal(played, infogaze.load("digits"), digit, seed=seed)


def test_side_by_side_all_look_as_python_does_from_the_same_first_place(
    visit: Visit, digit: Image.Image, paper_folder: Path
) -> None:
    visit.page.locator("[data-mode=compare]").click()
    visit.settled()
    visit.finish()
    players = visit.players()
    assert list(players) == ["ours", "paper", "random"]
    assert len({player["looks"][0] for player in players.values()}) == 1
    digits = infogaze.load("digits")
    require_equal(players["ours"], digits, digit)
    require_equal(players["paper"], infogaze.load(paper_folder).with_stop(None), digit)
    require_equal(players["random"], digits, digit, policy=RandomPolicy())


def test_another_question_changes_the_gaze_as_it_does_in_python(visit: Visit, digit: Image.Image) -> None:
    visit.page.locator("#question").select_option("odd-even")
    visit.settled()
    visit.finish()
    agent = infogaze.load("digits").ask({"odd": ["1", "3", "5", "7", "9"], "even": None})
    require_equal(visit.players()["ours"], agent, digit)
    assert "odd" in visit.says() or "even" in visit.says()


def test_a_click_looks_there_and_says_what_it_was_worth(visit: Visit, digit: Image.Image) -> None:
    visit.step()
    place = next(place for place in range(49) if place not in visit.players()["ours"]["looks"])
    planned = visit.page.evaluate("infogaze.players[0].plan.place")
    place = place if place != planned else place + 1
    visit.look_at(place)
    played = visit.players()["ours"]
    assert played["looks"][1] == place
    require_equal(played, infogaze.load("digits"), digit, own=(1,))
    worth = visit.page.locator("#worth")
    worth.wait_for(state="visible")
    agent = infogaze.load("digits")
    episode = agent.classify(digit, seed=0, budget=2).episode
    had, models = (float(look.entropy[0]) for look in episode.history)
    amounts = worth.locator(".share").all_inner_texts()
    yours = had - entropy_of(played["answers"][2])
    for said, value in zip(amounts, (yours, had - models), strict=True):
        assert abs(float(said.removesuffix(" nats").replace("−", "-")) - value) < 0.006
    assert "It expected" in worth.inner_text()


def entropy_of(answers: list[float]) -> float:
    return -sum(p * np.log(p) for p in answers if p > 0)


def test_the_keyboard_is_enough(visit: Visit) -> None:
    page = visit.page
    page.locator("#step").focus()
    page.keyboard.press("Enter")
    visit.settled()
    assert len(visit.players()["ours"]["looks"]) == 1
    for _ in range(40):
        page.keyboard.press("Shift+Tab")
        if page.evaluate("document.activeElement.getAttribute('role')") == "gridcell":
            break
    before = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert before.startswith("Row 12, column 12")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    at = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert at.startswith("Row 8, column 16")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.keyboard.press("Enter")
    visit.settled()
    assert visit.players()["ours"]["looks"][1:] == [2 * 7 + 4]
    page.keyboard.press("Enter")  # it was looked at, so nothing happens
    visit.settled()
    assert len(visit.players()["ours"]["looks"]) == 2


def test_every_control_has_a_name_and_what_happens_is_said(visit: Visit) -> None:
    tree = visit.page.locator("body").aria_snapshot()
    assert "- button:" not in tree
    assert "- button\n" not in tree
    for name in (
        "Look",
        "Play",
        "Reveal",
        "Model",
        "Question",
        "Stop early",
        "Seed of the first look",
        "Places to look at",
    ):
        assert name in tree
    assert visit.page.locator("#says").get_attribute("aria-live") == "polite"
    visit.step()
    assert visit.says().startswith("After 1 of 7 looks: ")


def test_the_picture_stays_hidden_but_for_the_looks_until_it_is_revealed(visit: Visit) -> None:
    opaque = """document.querySelectorAll(".board canvas")[1].getContext("2d").getImageData(0, 0, 32, 32).data
      .filter((value, i) => i % 4 === 3 && value).length"""
    assert visit.page.evaluate(opaque) == 0
    visit.step()
    assert visit.page.evaluate(opaque) == 64
    visit.page.locator("#reveal").click()
    assert visit.page.evaluate(opaque) == 1024
    assert "The answer is 3" in visit.says()
    visit.page.locator("#reveal").click()
    assert visit.page.evaluate(opaque) == 64


def test_play_goes_on_until_it_is_over_and_pause_holds_it(visit: Visit) -> None:
    page = visit.page
    page.locator("#play").click()
    visit.until("infogaze.players[0].episode.state.looks.length >= 1")
    page.locator("#play").click()
    visit.settled()
    held = len(visit.players()["ours"]["looks"])
    page.wait_for_timeout(1800)
    assert len(visit.players()["ours"]["looks"]) == held < 7
    page.locator("#faster").click()
    page.locator("#faster").click()
    assert page.locator("#faster").inner_text() == "4×"
    page.locator("#play").click()
    visit.until("infogaze.players[0].episode.done")
    assert len(visit.players()["ours"]["looks"]) == 7


def test_the_stop_rule_ends_an_episode_and_says_why(visit: Visit, digit: Image.Image) -> None:
    visit.page.locator("#stop").select_option("confidence:0.9")
    visit.settled()
    visit.finish()
    played = visit.players()["ours"]
    expected = infogaze.load("digits").classify(digit, stop=infogaze.Confident(0.9)).episode
    assert len(played["looks"]) == len(expected.history) < 7
    assert played["ended"] == "rule"
    assert f"Stopped after {len(played['looks'])} of 7 looks" in visit.says()
    assert "the rule asks for 90.0 %" in visit.says()


def test_a_rule_on_what_is_left_to_gain_reads_the_map(visit: Visit, digit: Image.Image) -> None:
    visit.page.locator("#stop").select_option("gain:0.01")
    visit.settled()
    visit.finish()
    expected = infogaze.load("digits").classify(digit, stop=infogaze.LittleToGain(0.01)).episode
    assert len(visit.players()["ours"]["looks"]) == len(expected.history)


def test_a_calibrated_rule_is_that_of_its_model_until_another_is_chosen(
    visit: Visit, digit: Image.Image, paper_folder: Path
) -> None:
    visit.open("#model=small-paper")
    assert visit.page.locator("#stop").input_value() == "own"
    visit.finish()
    expected = infogaze.load(paper_folder).classify(digit).episode
    assert expected.ended_by == ("rule",)
    played = visit.players()["ours"]
    assert (len(played["looks"]), played["ended"]) == (len(expected.history), "rule") == (3, "rule")
    visit.page.locator("#stop").select_option("never")
    visit.settled()
    visit.finish()
    assert len(visit.players()["ours"]["looks"]) == 7


def test_a_link_reproduces_an_episode_and_holds_no_picture(visit: Visit, visitor: Callable[..., Visit]) -> None:
    visit.open("#seed=4")
    visit.step()
    visit.look_at(30 if visit.page.evaluate("infogaze.players[0].plan.place") != 30 else 31)
    visit.step()
    link = visit.page.url.removeprefix(visit.address)
    assert set(link_of(visit)) <= {"mode", "model", "picture", "seed", "looks", "question", "stop"}
    again = visitor()
    again.open(link)
    assert again.players() == visit.players()
    visit.page.reload()
    visit.settled()
    assert visit.players() == again.players()


def test_a_link_with_nonsense_opens_the_page_all_the_same(visit: Visit) -> None:
    for link in (
        "#model=nobody&seed=x&looks=1.-2.q",
        "#looks=900.900&stop=never&question=why&picture=&mode=dance",
        "#%%%",
    ):
        visit.open(link)
        visit.step()
        assert len(visit.players()["ours"]["looks"]) == 1


def test_an_own_picture_is_dropped_in_and_its_link_waits_for_it(visit: Visit, visitor: Callable[..., Visit]) -> None:
    data = picture((200, 150))
    asked = len(visit.asked)
    drop(visit, data, "mine.png")
    visit.until("infogaze.picture === 'own'")
    visit.settled()
    visit.finish()
    require_equal(visit.players()["ours"], infogaze.load("digits"), Image.open(io.BytesIO(data)))
    assert {
        where for where in visit.asked[asked:] if not where.endswith("/icon.svg")
    } == set()  # asked for with every address
    assert link_of(visit)["picture"] == ["own"]
    again = visitor()
    again.open(visit.page.url.removeprefix(visit.address))
    assert "does not hold" in again.says()
    again.page.locator("#file").set_input_files({"name": "mine.png", "mimeType": "image/png", "buffer": data})
    again.until("infogaze.players[0]?.episode.state.looks.length === 7")
    again.settled()
    assert again.players() == visit.players()


def test_files_that_are_no_pictures_or_too_small_get_a_sentence_and_break_nothing(visit: Visit) -> None:
    page = visit.page
    for name, data, said in (
        ("words.txt", b"no picture", "no picture that this browser can read"),
        ("half.png", picture()[:200], "no picture that this browser can read"),
        ("empty.png", b"", "no picture that this browser can read"),
        ("tiny.png", picture((7, 30)), "30×7 pixels. One glimpse of this model is 8×8"),
    ):
        page.locator("#file").set_input_files({"name": name, "mimeType": "image/png", "buffer": data})
        visit.until(f"document.getElementById('trouble').textContent.includes({said!r})")
        visit.settled()
    visit.step()
    assert len(visit.players()["ours"]["looks"]) == 1


def test_a_frame_of_the_camera_is_a_picture(visit: Visit) -> None:
    page = visit.page
    page.locator("#use-camera").click()
    visit.until("document.getElementById('camera-view').videoWidth > 0")
    page.locator("#camera-take").click()
    visit.until("infogaze.picture === 'own'")
    visit.settled()
    visit.step()
    assert visit.page.evaluate("document.getElementById('camera-view').srcObject") is None
    assert visit.page.locator("#trouble").is_hidden()


def test_without_a_camera_there_is_a_sentence(visitor: Callable[..., Visit]) -> None:
    visit = visitor()
    visit.page.add_init_script(
        "if (navigator.mediaDevices) navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException('', 'NotFoundError'))"
    )
    visit.open()
    visit.page.locator("#use-camera").click()
    assert "no camera" in visit.trouble()


def test_in_a_quiz_both_have_the_same_first_look_and_budget_and_nothing_is_shown_before_the_end(
    visit: Visit, digit: Image.Image
) -> None:
    page = visit.page
    page.locator("[data-mode=quiz]").click()
    visit.settled()
    visit.step()
    for place in [place for place in range(49) if place not in visit.players()["you"]["looks"]][:6]:
        assert page.locator(".ring.next").count() == 0
        assert page.locator(".player .bars").first.is_hidden()
        visit.look_at(place)
    you, model = visit.players()["you"], visit.players()["ours"]
    assert len(you["looks"]) == len(model["looks"]) == 7
    assert you["looks"][0] == model["looks"][0]
    digits = infogaze.load("digits")
    require_equal(you, digits, digit, own=range(1, 7))
    require_equal(model, digits, digit)
    page.locator("#guess button", has_text="8").click()
    assert "The answer is 3; you said 8." in visit.says()
    assert page.locator(".player .bars").first.is_visible()


def test_the_imagined_scene_is_drawn_around_what_was_seen(visit: Visit, digit: Image.Image) -> None:
    visit.step()
    visit.page.locator("[data-overlay=imagined]").click()
    drawn = visit.page.evaluate(
        "Array.from(document.querySelector('.board .under').getContext('2d').getImageData(0, 0, 32, 32).data)"
    )
    episode = infogaze.load("digits").classify(digit, budget=1).episode
    imagined = episode.imagined()
    assert imagined is not None
    expected = imagined.picture[0, 0].int().numpy()
    assert np.abs(np.array(drawn).reshape(32, 32, 4)[..., 0] - expected).max() <= 1


@pytest.mark.parametrize("mode", ["watch", "compare", "quiz"])
def test_a_phone_shows_all_without_scrolling_sideways(visitor: Callable[..., Visit], mode: str) -> None:
    visit = visitor(**TOUCH)
    visit.open(f"#mode={mode}")
    assert visit.page.locator("#step").bounding_box()["height"] >= 38  # type: ignore[index]
    visit.page.locator("#step").tap()
    visit.settled()
    wide = visit.page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 375


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_until_the_visitor_says_otherwise(visitor: Callable[..., Visit], scheme: str) -> None:
    visit = visitor(color_scheme=scheme)
    visit.open()
    background = "getComputedStyle(document.body).backgroundColor"
    colours = {"light": "rgb(251, 251, 250)", "dark": "rgb(21, 25, 30)"}
    assert visit.page.evaluate(background) == colours[scheme]
    visit.page.locator("#theme").click()
    other = colours["dark" if scheme == "light" else "light"]
    assert visit.page.evaluate(background) == other
    visit.page.reload()
    visit.settled()
    assert visit.page.evaluate(background) == other


def test_a_browser_without_webassembly_gets_a_sentence(visitor: Callable[..., Visit]) -> None:
    visit = visitor()
    visit.page.add_init_script("delete globalThis.WebAssembly")
    visit.page.goto(visit.address)
    assert "WebAssembly" in visit.trouble()
    assert visit.page.locator("#waking").is_hidden()


def test_a_model_that_cannot_be_fetched_gets_a_sentence(visitor: Callable[..., Visit]) -> None:
    visit = visitor()
    visit.page.route("**/weights.bin", lambda route: route.abort())
    visit.page.goto(visit.address)
    assert "cannot be run here" in visit.trouble()


def test_the_page_is_painted_before_the_model_has_come_and_tells_how_far_it_is(visitor: Callable[..., Visit]) -> None:
    visit = visitor()
    held: list[Route] = []
    visit.page.route("**/weights.bin", lambda route: held.append(route))  # noqa: PLW0108 (it asks for a plain function)
    visit.page.goto(visit.address)
    visit.until("document.getElementById('waking-bar').value > 0.9")
    assert visit.page.locator("h1").is_visible()
    assert visit.page.locator("#stage .board").first.is_visible()
    assert "of 1" in visit.page.locator("#waking-says").inner_text()
    while not held:
        visit.page.wait_for_timeout(20)
    held[0].continue_()
    visit.settled()
    assert visit.page.locator("#waking").is_hidden()


def test_the_page_asks_for_nothing_outside_and_its_policy_would_not_let_it(visit: Visit) -> None:
    visit.finish()
    own = visit.address
    assert [where for where in visit.asked if not where.startswith((own, f"blob:{own}"))] == []
    with socket.create_server(("127.0.0.1", 0)) as outside:
        outside.setblocking(False)
        elsewhere = f"http://127.0.0.1:{outside.getsockname()[1]}/x.js"
        for attempt in ("fetch", "import"):
            tried = f"{attempt}({elsewhere!r}).then(() => 'allowed', () => 'refused')"
            assert visit.page.evaluate(tried) == "refused"
        # The worker keeps to the page's policy, although none of the page's scripts runs in it.
        said = visit.page.evaluate(
            """(elsewhere) => new Promise((resolve) => {
              const code = `fetch("${elsewhere}").catch(() => {});
                addEventListener("securitypolicyviolation", (event) => postMessage(event.effectiveDirective));`;
              const worker = new Worker(URL.createObjectURL(new Blob([code], { type: "text/javascript" })), { type: "module" });
              worker.onmessage = ({ data }) => resolve(data);
            })""",
            elsewhere,
        )
        assert said == "connect-src"
        with pytest.raises(BlockingIOError):  # nobody has called
            outside.accept()


@pytest.fixture(scope="module")
def cifar_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page with the models that most visitors will see."""
    models = ["cifar10-plus", "cifar10-paper"]
    with served(write_page(tmp_path_factory.mktemp("cifar") / "out", models, runtime=runtime()).folder) as where:
        yield where


def test_the_bundled_cifar_models_look_as_in_python_mirrored_beliefs_and_all(
    visitor: Callable[..., Visit], cifar_address: str
) -> None:
    visit = visitor(cifar_address)
    visit.open("#mode=compare&seed=11")
    visit.finish()
    players = visit.players()
    plus = infogaze.load("cifar10-plus")
    require_equal(players["ours"], plus, infogaze.sample_picture(), seed=11)
    require_equal(players["paper"], infogaze.load("cifar10-paper"), infogaze.sample_picture(), seed=11)
    require_equal(players["random"], plus, infogaze.sample_picture(), seed=11, policy=RandomPolicy())


def test_animal_or_vehicle_is_asked_of_cifar10_plus_as_in_python(
    visitor: Callable[..., Visit], cifar_address: str
) -> None:
    visit = visitor(cifar_address)
    visit.open("#question=animal-vehicle&seed=3")
    visit.finish()
    vehicles = ["airplane", "automobile", "ship", "truck"]
    agent = infogaze.load("cifar10-plus").ask({"animal": None, "vehicle": vehicles})
    require_equal(visit.players()["ours"], agent, infogaze.sample_picture(), seed=3)
