"""A whole episode without torch: the graphs of `infogaze export`, run by onnxruntime.

python onnx_loop.py EXPORTED PICTURE [SEED]
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image

GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def mixed(x):
    """A hash of whole numbers of 64 bits, which wrap around."""
    x = (x ^ (x >> np.uint64(30))) * FIRST
    x = (x ^ (x >> np.uint64(27))) * SECOND
    return x ^ (x >> np.uint64(31))


def whole(number):
    """Any whole number as one of 64 bits."""
    return np.array([number % 2**64], np.uint64)


def scene_seeds(seed, batch):
    """The seeds of the scenes of an episode that was given one seed."""
    return mixed(mixed(whole(seed)) + np.arange(batch, dtype=np.uint64))


def stream(seeds, number, count):
    """Uniform numbers, [batch, count]."""
    keys = mixed(seeds + whole((number + 1) * GOLDEN))
    bits = mixed(keys[:, None] + np.arange(count, dtype=np.uint64) * whole(GOLDEN)) >> np.uint64(40)
    return np.minimum((bits.astype(np.float32) + np.float32(0.5)) * np.float32(2**-24), np.float32(1 - 2**-24))


def uniform(seeds, look, count):
    """The uniform numbers of a look."""
    return stream(seeds, 2 * look, count)


def normal(seeds, look, count):
    """The normal numbers of a look."""
    angle = np.float32(2 * math.pi) * stream(seeds, 2 * look + 1, count)
    return np.sqrt(np.float32(-2) * np.log(stream(seeds, 2 * look, count))) * np.cos(angle)


class Model:
    """An exported folder."""

    def __init__(self, folder, threads=1):
        folder = Path(folder)
        self.contract = json.loads((folder / "contract.json").read_text())
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.graphs = {
            name: onnxruntime.InferenceSession(folder / graph["file"], options)
            for name, graph in self.contract["graphs"].items()
        }
        rows, cols = self.contract["rows"], self.contract["cols"]
        self.places = np.array([(row, col) for row in rows for col in cols], np.float32)

    def run(self, name, **values):
        """What a graph gives, by name; it is given those of the values that it takes."""
        graph = self.contract["graphs"][name]
        taken = {port["name"]: values[port["name"]] for port in graph["inputs"]}
        return dict(zip([port["name"] for port in graph["outputs"]], self.graphs[name].run(None, taken), strict=True))

    def start(self, batch):
        """The belief before the first look."""
        return {
            f"belief.{part['name']}": np.tile(np.broadcast_to(np.float32(part["start"]), part["size"]), (batch, 1))
            for part in self.contract["belief"]
        }


class Episode:
    """A batch of scenes, looked at one glimpse at a time."""

    def __init__(self, model, seeds):
        self.model, self.seeds = model, seeds
        self.belief = model.start(len(seeds))
        self.allowed = np.ones((len(seeds), len(model.places)), bool)
        self.looks = 0
        self.stopped = np.zeros(len(seeds), bool)
        self.probabilities = np.full((len(seeds), len(model.contract["classes"])), 1 / len(model.contract["classes"]))
        self.gain = self.location = self.planned = None

    @property
    def running(self):
        """The scenes that go on: not stopped, and with a place left."""
        return ~self.stopped & self.allowed.any(1)

    @property
    def done(self):
        """Whether the budget is spent, or no scene goes on."""
        return self.looks >= self.model.contract["num_looks"] or not self.running.any()

    def plan(self):
        """What *decide* says now; it is asked once a look."""
        if self.planned is None:
            need, noise = self.model.contract["noise"], {}
            if need is not None:
                draw = normal if need["kind"] == "normal" else uniform
                noise["noise"] = draw(self.seeds, self.looks, need["count"])
            self.planned = self.model.run("decide", allowed=self.allowed, **self.belief, **noise)
        return self.planned

    def next_location(self):
        """Row and column of the next glimpses' top-left pixels, [batch, 2]."""
        if self.looks == 0:
            order = np.where(self.allowed, uniform(self.seeds, 0, len(self.model.places)), -np.inf)
            self.location, self.gain = self.model.places[order.argmax(1)], np.zeros_like(order)
        else:
            self.location, self.gain = self.plan()["location"], self.plan()["gain"]
        return self.location

    def observe(self, glimpse):
        """Take in what was seen there, float32 [batch, channels, side, side] in [0, 1]."""
        seen = self.model.run("see", glimpse=glimpse, location=self.location, **self.belief)
        going = self.running[:, None]
        for name, before in self.belief.items():
            self.belief[name] = np.where(going, seen[name.replace("belief.", "next.")], before)
        self.probabilities = np.where(going, seen["probabilities"], self.probabilities)
        there = (np.abs(self.location[:, None] - self.model.places) < 0.5).all(2)
        self.allowed &= ~(there & going)
        self.looks, self.planned = self.looks + 1, None
        if not self.done:
            self.stopped |= self.may_stop()

    def may_stop(self):
        """What the stop rule says after these looks."""
        rule = self.model.contract["stop"]
        threshold = rule and rule["budget"] == self.model.contract["num_looks"] and rule["thresholds"][self.looks - 1]
        if not threshold and threshold != 0.0:
            return np.zeros(len(self.seeds), bool)
        if rule["rule"] == "confidence":
            return self.probabilities.max(1) >= threshold
        if rule["rule"] == "entropy":
            logarithms = np.log(np.maximum(self.probabilities, np.finfo(np.float32).tiny))
            return -(self.probabilities * logarithms).sum(1) <= threshold
        return np.where(self.allowed, self.plan()["gain"], -np.inf).max(1) < threshold


def glimpses(scenes, locations, side):
    """What a sensor would return: a model sees no more of a scene than this."""
    cut = [scene[:, r : r + side, c : c + side] for scene, (r, c) in zip(scenes, locations.astype(int), strict=True)]
    return np.stack(cut).astype(np.float32) / 255


def scene_of(picture, contract):
    """A picture at the size of the model's scenes, uint8 [channels, height, width]."""
    image = Image.open(picture).convert("RGB" if contract["channels"] == 3 else "L")
    image = image.resize((contract["width"], contract["height"]), Image.Resampling.LANCZOS)
    pixels = np.asarray(image)
    return pixels.transpose(2, 0, 1) if pixels.ndim == 3 else pixels[None]


def main(folder, picture, seed="0"):
    """Look at a picture, a line a look."""
    model = Model(folder)
    scenes = scene_of(picture, model.contract)[None]
    episode = Episode(model, scene_seeds(int(seed), 1))
    while not episode.done:
        where = episode.next_location()
        episode.observe(glimpses(scenes, where, model.contract["glimpse_size"]))
        best = int(episode.probabilities[0].argmax())
        label, share = model.contract["classes"][best], 100 * episode.probabilities[0, best]
        print(f"look {episode.looks} at row {where[0, 0]:g}, column {where[0, 1]:g}: {label}, {share:.1f} %")


if __name__ == "__main__":
    main(*sys.argv[1:])
