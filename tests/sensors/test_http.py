"""A service that returns crops, on this machine."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
import torch
from PIL import Image

from infogaze import HttpSensor, ImageSensor, InfogazeError, LookFailed, Retrying, Seen
from tests.support.tiny import CONFIG, scenes, tiny_agent

SIDE = CONFIG.glimpse_size
AGENT = tiny_agent()
IMAGE = scenes(1)[0].permute(1, 2, 0).numpy()
COLOUR = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def picture(array: np.ndarray, kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, kind)
    return buffer.getvalue()


class Service(ThreadingHTTPServer):
    """Answers with what `answer(row, col, size)` gives: bytes, or a status."""

    daemon_threads = True

    def __init__(self) -> None:
        self.answer: Callable[[int, int, int], bytes | int] = lambda row, col, size: 404
        self.asked: list[tuple[int, int, int]] = []
        self.keys: list[str | None] = []
        self.wait = threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/crop?row={{row}}&col={{col}}&size={{size}}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        service = self.server
        assert isinstance(service, Service)
        query = parse_qs(urlsplit(self.path).query)
        row, col, size = (int(query[name][0]) for name in ("row", "col", "size"))
        service.asked.append((row, col, size))
        service.keys.append(self.headers["X-Key"])
        found = service.answer(row, col, size)
        if isinstance(found, int):
            self.send_error(found)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(found)))
        self.end_headers()
        self.wfile.write(found)

    def log_message(self, *_: Any) -> None:
        """Nothing is said."""


@pytest.fixture
def service() -> Iterator[Service]:
    server = Service()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.wait.set()
    server.shutdown()
    thread.join()
    server.server_close()


def cut(image: np.ndarray) -> Callable[[int, int, int], np.ndarray]:
    return lambda row, col, size: np.ascontiguousarray(image[row : row + size, col : col + size])


def test_an_agent_looks_through_a_service_as_at_the_image(service: Service) -> None:
    service.answer = lambda row, col, size: npy(cut(IMAGE)(row, col, size))
    sensor = HttpSensor(service.url, SIDE, headers={"X-Key": "ours"})
    episode, plain = AGENT.run(sensor), AGENT.run(ImageSensor(scenes(1), SIDE))
    assert torch.equal(episode.probabilities, plain.probabilities)
    assert [asked[:2] for asked in service.asked] == [tuple(look.location[0].tolist()) for look in plain.history]
    assert service.keys == ["ours"] * 4
    assert sensor.bytes_read == 4 * len(npy(IMAGE[:SIDE, :SIDE]))


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_pictures_are_read(kind: str, service: Service) -> None:
    smooth = np.asarray(Image.fromarray(COLOUR).resize((64, 64), box=(0, 0, 8, 8)))
    service.answer = lambda row, col, size: picture(cut(smooth)(row, col, size), kind)
    glimpse = HttpSensor(service.url, 16).look([[8, 12]])
    answer = service.answer(8, 12, 16)
    assert isinstance(answer, bytes)
    expected = np.asarray(Image.open(io.BytesIO(answer)))
    assert isinstance(glimpse, torch.Tensor)
    np.testing.assert_array_equal(glimpse[0], expected.transpose(2, 0, 1))


def test_grey_pictures_serve_models_of_colour(service: Service) -> None:
    service.answer = lambda row, col, size: picture(cut(COLOUR[..., 0])(row, col, size), "PNG")
    glimpse = HttpSensor(service.url, 8, channels=3).look([[4, 5]])
    assert isinstance(glimpse, torch.Tensor)
    assert torch.equal(glimpse[0], torch.from_numpy(COLOUR[4:12, 5:13, 0].copy()).expand(3, 8, 8))


def test_a_scale_asks_for_larger_crops_and_says_where_they_were(service: Service) -> None:
    service.answer = lambda row, col, size: npy(cut(COLOUR)(row, col, size))
    glimpse = HttpSensor(service.url, 8, scale=3.0).look([[4, 5]])
    assert service.asked == [(12, 15, 24)]
    expected = COLOUR[12:36, 15:39].reshape(8, 3, 8, 3, 3).mean((1, 3)) / 255
    assert isinstance(glimpse, torch.Tensor)
    np.testing.assert_allclose(glimpse[0].permute(1, 2, 0), expected, atol=1e-6)
    seen = HttpSensor(service.url, 8, scale=1.5).look([[1, 5]])
    assert isinstance(seen, Seen)
    assert service.asked[-1] == (2, 8, 12)
    torch.testing.assert_close(torch.as_tensor(seen.at), torch.tensor([[2 / 1.5, 8 / 1.5]], dtype=torch.float64))


FAILING: dict[str, bytes | int] = {
    "missing": 404,
    "broken": 500,
    "busy": 503,
    "no picture": b"<html>later</html>",
    "nothing": b"",
    "half a picture": picture(COLOUR, "PNG")[:200],
    "half an array": npy(COLOUR)[:200],
    "an array that promises more": npy(np.zeros(4, np.uint8))
    .replace(b"(4,)", b"(4000000000000,)")
    .replace(b"  ", b"", 6),
    "objects": b"\x93NUMPY\x01\x00v\x00"
    + b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(117)
    + b"\n.",
    "another kind of picture": picture(COLOUR, "GIF"),
}


@pytest.mark.parametrize("answer", FAILING.values(), ids=FAILING)
def test_what_the_service_does_not_give_is_a_look_that_fails(answer: bytes | int, service: Service) -> None:
    service.answer = lambda row, col, size: answer
    with pytest.raises(LookFailed, match=r"^http://127"):
        HttpSensor(service.url, SIDE).look([[0, 0]])


def test_a_service_that_fails_at_times_is_asked_again(service: Service) -> None:
    service.answer = lambda row, col, size: 503 if len(service.asked) % 3 else npy(cut(IMAGE)(row, col, size))
    episode = AGENT.run(Retrying(HttpSensor(service.url, SIDE), attempts=3))
    assert len(service.asked) == 3 * AGENT.num_looks
    assert torch.equal(episode.probabilities, AGENT.run(ImageSensor(scenes(1), SIDE)).probabilities)


def test_a_service_that_does_not_answer_in_time_is_a_look_that_fails(service: Service) -> None:
    def slow(row: int, col: int, size: int) -> bytes:
        service.wait.wait(60)
        return b""

    service.answer = slow
    with pytest.raises(LookFailed, match="timed out"):
        HttpSensor(service.url, SIDE, timeout=0.05).look([[0, 0]])


def test_a_service_that_is_not_there_is_a_look_that_fails(service: Service) -> None:
    url = service.url
    service.shutdown()
    service.server_close()
    with pytest.raises(LookFailed):
        HttpSensor(url, SIDE).look([[0, 0]])


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_service_that_refuses_ends_the_episode(status: int, service: Service) -> None:
    service.answer = lambda row, col, size: status
    with pytest.raises(InfogazeError, match=f"refuses: {status}"):
        AGENT.run(HttpSensor(service.url, SIDE))


def test_a_crop_of_another_size_ends_the_episode(service: Service) -> None:
    service.answer = lambda row, col, size: npy(IMAGE[:5, :5])
    with pytest.raises(InfogazeError, match="5 pixels a side; 4 are needed"):
        AGENT.run(HttpSensor(service.url, SIDE))
    service.answer = lambda row, col, size: npy(IMAGE[:4, :3])
    with pytest.raises(InfogazeError, match="square"):
        AGENT.run(HttpSensor(service.url, SIDE))


@pytest.mark.parametrize(
    "url", ["file:///etc/{row}/{col}", "http://host/crop", "http://host/{row}", "http:///{row}/{col}", "http://host/{x}{row}{col}", "http://host/{row}/{col"]
)  # fmt: skip
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InfogazeError, match="the URL is"):
        HttpSensor(url, SIDE)


def test_senseless_options_are_refused() -> None:
    url = "http://host/{row}/{col}"
    with pytest.raises(InfogazeError, match="scale is 0.0"):
        HttpSensor(url, SIDE, scale=0.0)
    with pytest.raises(InfogazeError, match="scale is 0.1"):
        HttpSensor(url, SIDE, scale=0.1)
    with pytest.raises(InfogazeError, match="timeout is 0"):
        HttpSensor(url, SIDE, timeout=0.0)
    with pytest.raises(InfogazeError, match=r"\(1, 2\)"):
        HttpSensor(url, SIDE).look([[0, 0], [0, 0]])
