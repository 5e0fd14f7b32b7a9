"""Devices by name, as a user gives them."""

from __future__ import annotations

import torch

from infogaze.errors import InfogazeError


def device_named(name: str) -> torch.device:
    """A device by name, or the best there is for `auto`; refuses one that is not there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InfogazeError(f"device is {name!r}; auto, cpu, cuda or cuda:N is allowed") from None
    if device.type not in {"cpu", "cuda"}:
        raise InfogazeError(f"device is {name!r}; auto, cpu, cuda or cuda:N is allowed")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InfogazeError(f"device is {name!r}, and no GPU is available here")
    return device
