from __future__ import annotations

import pytest
import torch

from infogaze.devices import device_named
from infogaze.errors import InfogazeError


def test_the_best_device_there_is_is_taken_where_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for available, kind in ((False, "cpu"), (True, "cuda")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda available=available: available)
        assert device_named("auto").type == kind
    assert device_named("cpu") == torch.device("cpu")


@pytest.mark.parametrize("name", ["toaster", "", "meta", "cuda:x", "mps"])
def test_a_device_that_is_none_is_named_with_those_allowed(name: str) -> None:
    with pytest.raises(InfogazeError, match=rf"device is '{name}'; auto, cpu, cuda or cuda:N is allowed"):
        device_named(name)


def test_a_gpu_that_is_not_there_is_said_to_be_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InfogazeError, match="'cuda:1', and no GPU"):
        device_named("cuda:1")
