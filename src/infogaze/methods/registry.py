"""All methods by name. A method is imported when it is asked for: who loads one model does not wait for all the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from infogaze.errors import InfogazeError
from infogaze.methods.method import Method
from infogaze.nn.config import ModelConfig
from infogaze.nn.model import GlimpseClassifier, seeded

_MODULES = {
    "infogaze": "dictionary",
    "dictionary": "dictionary",
    "paper": "three_phases",
    "gaussian": "three_phases",
    "paper-corrected": "three_phases",
    "gaussian-corrected": "three_phases",
    "attention": "three_phases",
    "random": "random_looks",
    "ram": "ram",
    "ram-plus": "ram_plus",
    "discriminative": "discriminative",
    "oracle": "oracle",
    "cnn": "cnn",
}
"""The file of each, in which `METHODS` holds it."""

PLAIN_METHOD = "random"
"""The method that has F, R and C and nothing else: its phase 1 serves all that share them."""


class _Registry(Mapping[str, Method]):
    def __init__(self) -> None:
        self.added: dict[str, Method] = {}

    def __getitem__(self, name: str) -> Method:
        if name in self.added:
            return self.added[name]
        if name not in _MODULES:
            raise InfogazeError(f"no method is called {name!r}; there are {', '.join(self)}")
        found: Method = import_module(f"infogaze.methods.{_MODULES[name]}").METHODS[name]
        return found

    def __contains__(self, name: object) -> bool:
        return name in _MODULES or name in self.added

    def __iter__(self) -> Iterator[str]:
        return iter((*_MODULES, *self.added))

    def __len__(self) -> int:
        return len(_MODULES) + len(self.added)


_REGISTRY = _Registry()
METHODS: Mapping[str, Method] = _REGISTRY
"""By name, ours first."""


def register_method(name: str, method: Method) -> None:
    """Add a method of one's own, for this process: it can be trained, evaluated and loaded by its name then."""
    if name in METHODS:
        raise InfogazeError(f"a method is called {name!r} already; there are {', '.join(METHODS)}")
    _REGISTRY.added[name] = method


def build_for(name: str, config: ModelConfig, seed: int = 0) -> GlimpseClassifier:
    """A method's networks with fresh weights, which the seed fixes: those of F, R and C are the same for all methods that have them."""
    return seeded(METHODS[name].build, config, seed)
