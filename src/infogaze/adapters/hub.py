"""The Hugging Face Hub: models as folders in its layout, our files and a card with metadata. Needs the extra `hub`."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from infogaze.data.registry import OWN_DATA
from infogaze.errors import InfogazeError
from infogaze.evaluation import store
from infogaze.evaluation.estimates import Estimate, accuracy
from infogaze.evaluation.exact_pass import Records
from infogaze.files import read_json, write_whole
from infogaze.gaze.agent import Agent
from infogaze.models import load as load_folder
from infogaze.models import save
from infogaze.runs import read_config
from infogaze.version import __version__

try:
    from huggingface_hub import EvalResult, ModelCard, ModelCardData, ModelHubMixin, snapshot_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError
except ImportError:
    raise InfogazeError("infogaze.adapters.hub needs the extra 'hub': pip install 'infogaze[hub]'") from None

_FILES = ("model.json", "*.safetensors", "README.md")
"""All that is taken from a repository: nothing that could run."""
_HUB_ERRORS: tuple[type[Exception], ...] = (OSError, EntryNotFoundError, HFValidationError, *HfHubHTTPError.__bases__)
"""What the Hub's library raises where there is no network, no such model, or no leave; the last are its HTTP library's own."""
_TASK = "image-classification"


class HubAgent(ModelHubMixin, library_name="infogaze", pipeline_tag=_TASK, tags=["active-vision", "hard-attention"]):
    """An agent with the Hub's own methods: `save_pretrained`, `from_pretrained` and `push_to_hub`, and its card."""

    def __init__(self, agent: Agent, card: ModelCard | str | None = None) -> None:
        self.agent = agent
        self.card = str(model_card(agent) if card is None else card)
        """What becomes README.md where there is none."""
        method = None if agent.origin is None else agent.origin.method
        # The mixin writes it as config.json, by which the Hub counts downloads; all that a model needs is in model.json.
        self._hub_mixin_config = {"library_name": "infogaze", "infogaze_version": __version__, "method": method}

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | os.PathLike[str], **options: Any) -> HubAgent:
        """From a folder, or from a repository of the Hub, `owner/name`. The options are the mixin's own, and `device`."""
        name = os.fspath(pretrained_model_name_or_path)
        _config_in(Path(name))
        with _one_line(f"{name}: no such folder, and not to be had from the Hub"):
            return super().from_pretrained(name, **options)

    def save_pretrained(self, save_directory: str | os.PathLike[str], **options: Any) -> str | None:
        """To a folder; a README.md that is there stays. The options are the mixin's own."""
        folder = Path(save_directory)
        if _config_in(folder).get("library_name", "infogaze") != "infogaze" or "config" in _config_in(folder):
            raise InfogazeError(f"{folder / 'config.json'}: of something else, and would be lost; name another folder")
        with _one_line(f"{folder}: cannot be saved"):
            return super().save_pretrained(folder, **options)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """To a repository of the Hub. The options are the mixin's own."""
        with _one_line(f"{repo_id}: cannot be pushed to the Hub"):
            return super().push_to_hub(repo_id, **options)

    def generate_model_card(self, *_: Any, **__: Any) -> ModelCard:
        """The card as the Hub's library reads it."""
        return ModelCard(self.card)

    def _save_pretrained(self, save_directory: Path) -> None:
        save(self.agent, save_directory)
        if not (save_directory / "README.md").exists():
            write_whole(save_directory / "README.md", self.card.encode())

    @classmethod
    def _from_pretrained(
        cls, *, model_id: str, device: torch.device | str = "cpu", force_download: bool = False, **options: Any
    ) -> HubAgent:
        if Path(model_id).is_dir():
            return cls._from_folder(Path(model_id), device)
        fetched = snapshot_download(model_id, allow_patterns=list(_FILES), force_download=force_download, **options)
        with TemporaryDirectory() as folder:
            # The Hub's cache holds links, and a model folder may have none.
            return cls._from_folder(shutil.copytree(fetched, Path(folder) / "model"), device)

    @classmethod
    def _from_folder(cls, folder: Path, device: torch.device | str) -> HubAgent:
        card = folder / "README.md"
        return cls(load_folder(folder, device), card.read_text("utf-8", "replace") if card.is_file() else None)


def load(name_or_folder: str | os.PathLike[str], device: torch.device | str = "cpu", **options: Any) -> Agent:
    """An agent from a repository of the Hub, `owner/name`, or from a folder; `revision="..."` takes another state of a repository."""
    return HubAgent.from_pretrained(name_or_folder, device=device, **options).agent


def model_card(
    agent: Agent,
    *,
    name: str = "infogaze-model",
    license: str | None = None,
    datasets: Sequence[str] = (),
    measured: Estimate | None = None,
) -> ModelCard:
    """A card for a model: metadata that the Hub reads, and a page for people.

    `license` is that of the weights, as the Hub writes it ("mit", "cc-by-4.0"); `measured` the accuracy after each look on the test images
    of the first of `datasets`. What is not given is not claimed.
    """
    if measured is not None and not datasets:
        raise InfogazeError("datasets is empty; an accuracy needs the name of the set that it was measured on")
    shares = [] if measured is None else [round(float(share), 4) for share in measured.value]
    results = [
        EvalResult(
            task_type=_TASK, dataset_type=datasets[0], dataset_name=datasets[0], dataset_split="test",
            metric_type="accuracy", metric_name=f"accuracy after {_looks(looks)}", metric_value=share,
        )
        for looks, share in enumerate(shares, 1)
    ]  # fmt: skip
    data = ModelCardData(
        **HubAgent._hub_mixin_info.model_card_data.to_dict(),  # type: ignore[no-untyped-call]
        license=license,
        datasets=list(datasets) or None,
        metrics=["accuracy"] if results else None,
        model_name=name,
        eval_results=results or None,
    )
    return ModelCard(f"---\n{data.to_yaml()}\n---\n\n{_page(agent, name, measured)}")


def run_card(run: str | os.PathLike[str], *, name: str | None = None, license: str | None = None) -> ModelCard:
    """The card of a run: its set, and the accuracy that `infogaze evaluate` recorded, where it did."""
    folder = Path(run)
    evaluation = folder / "evaluation"
    measured = accuracy(store.read(evaluation, Records).correct) if store.has(evaluation, Records) else None
    data, title = read_config(folder).data, folder.resolve().name if name is None else name
    # A set of one's own has no name but its folder's or file's.
    dataset = Path(data.root).stem if data.name in OWN_DATA and data.root is not None else data.name
    return model_card(load_folder(folder), name=title, license=license, datasets=[dataset], measured=measured)


def _page(agent: Agent, name: str, measured: Estimate | None) -> str:
    grid = agent.model.grid
    lines = [
        f"# {name}",
        "",
        f"Classifies a scene of {grid.height}x{grid.width} pixels from up to {_looks(agent.num_looks)} of {grid.glimpse_size}x"
        f"{grid.glimpse_size} pixels, at places it asks for. It is never shown the scene whole.",
        "",
        "```python",
        "from infogaze.adapters.hub import load",
        "",
        'agent = load("owner/name")   # or the folder that this file is in',
        'result = agent.classify("picture.png")',
        "print(result.label)",
        "```",
        "",
        f"Labels: {', '.join(agent.classes)}.",
    ]
    if agent.origin is not None:
        lines += ["", f"Method: `{agent.origin.method}` of infogaze {__version__}."]
    if measured is not None:
        rows = zip(measured.value, measured.low, measured.high, strict=True)
        lines += [
            "",
            f"Accuracy in % of {measured.n} test images, with 95 % intervals:",
            "",
            "| looks | accuracy |",
            "|---|---|",
        ]
        lines += [
            f"| {looks} | {100 * float(value):.1f} [{100 * float(low):.1f}, {100 * float(high):.1f}] |"
            for looks, (value, low, high) in enumerate(rows, 1)
        ]
    return "\n".join(lines) + "\n"


def _looks(count: int) -> str:
    return "1 look" if count == 1 else f"{count} looks"


def _config_in(folder: Path) -> dict[str, Any]:
    """What a folder's config.json says, if there is one."""
    path = folder / "config.json"
    found = read_json(path) if path.is_file() else {}
    if not isinstance(found, dict):
        raise InfogazeError(f"{path}: not the configuration of a model")
    return found


@contextlib.contextmanager
def _one_line(failed: str) -> Iterator[None]:
    """What the Hub's library says where it cannot do something, in one line of ours."""
    try:
        yield
    except _HUB_ERRORS as error:
        if isinstance(error, InfogazeError):
            raise
        raise InfogazeError(f"{failed}: {' '.join(str(error).split())}") from None
