"""One decision and one scene of seven looks on this CPU: the released code of the paper's authors and ours, in turn in one process.

python benchmarks/authors.py CHECKOUT --threads 1 --repeats 30

CHECKOUT is a clone of github.com/samrudhdhirangrej/Probabilistic-Hard-Attention. All have the networks of `cifar10` and seven looks. The
weights are those of the package, and in the authors' code those that it begins with: they change no time.
"""

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from importlib import import_module

import torch
from latency import in_torch

import infogaze
from infogaze.methods.registry import METHODS
from infogaze.presets import preset

Acts = tuple[Callable[[], object], Callable[[], object]]
"""A decision, and a whole scene."""


def of_the_authors(checkout: str, image: torch.Tensor) -> Acts:
    """Their code as it is, as it is when it tests."""
    sys.path.insert(0, checkout)
    settings = preset("cifar10")
    sizes = settings.model
    # A phase that their code does not know is one that reads no weights.
    model = import_module("model").Model(
        "cifar10",
        settings.num_looks,
        sizes.flow_layers,
        sizes.feature_size,
        sizes.belief_size,
        sizes.latent_size,
        sizes.num_classes,
        sizes.glimpse_size,
        sizes.height,
        settings.beta,
        "none",
        None,
    )
    model.eval()
    side, samples = model.ggridsz, model.p
    rows, cols = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    hidden = torch.randn(1, sizes.belief_size, 1, 1)
    unseen = torch.zeros(1, side, side, dtype=torch.bool)
    label = torch.zeros(1, dtype=torch.long)

    @torch.no_grad()
    def decision() -> object:
        imagined = model.vae(hidden, samples)[0]
        places = model.glimpse.onlyfcl(torch.stack([rows, cols])[None] * model.gstride)
        now = torch.softmax(model.classifier(hidden)[:, :, 0, 0], -1)
        return model.locsample(model.glimpse.onlyfinal(imagined, places), hidden, now, unseen, samples)

    @torch.no_grad()
    def scene() -> object:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of meshgrid, which once asked for no order
            return model.sample(image, label)

    return decision, scene


def main() -> None:
    """A table, a line a code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout", help="a clone of the authors' repository")
    parser.add_argument("--models", nargs="+", default=["cifar10-paper", "cifar10"], help="bundled models, or folders")
    parser.add_argument(
        "--entries", type=int, nargs="*", default=[32, 16, 8], help="of a dictionary, beside the model's own number"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=30)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    loaded = {name: infogaze.load(name) for name in given.models}
    fewer = {
        f"{name}, {entries} entries": of.with_policy(METHODS[of.origin.method].policy(entries))
        for name, of in loaded.items()
        for entries in given.entries
        if of.origin is not None and METHODS[of.origin.method].imagination == "dictionary"
    }
    distilled = {f"{name}, distilled gain": of.with_distilled_gain() for name, of in loaded.items() if of.distilled}
    agents = {**loaded, **fewer, **distilled}
    scene = next(iter(agents.values())).classify(infogaze.sample_picture()).scene[None]
    codes = {"authors": of_the_authors(given.checkout, scene / 127.5 - 1.0)}
    codes |= {name: in_torch(agent, scene.numpy()) for name, agent in agents.items()}
    times: dict[tuple[str, int], list[float]] = {(name, which): [] for name in codes for which in (0, 1)}
    for turn in range(given.repeats + 3):
        for name, acts in codes.items():
            for which, act in enumerate(acts):
                began = time.perf_counter()
                act()
                if turn >= 3:  # warm
                    times[name, which].append(1e3 * (time.perf_counter() - began))
    print("| code | a decision, ms (quartiles) | times the authors' speed | a scene, ms (quartiles) | times |")
    print("|---|---|---|---|---|")
    for name in codes:
        cells = []
        for which in (0, 1):
            low, middle, high = statistics.quantiles(times[name, which], n=4)
            cells.append(f"{middle:.1f} ({low:.1f} to {high:.1f})")
            cells.append(f"{statistics.median(times['authors', which]) / middle:.1f}")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
