"""python recipes/distil.py DATA MODEL OUT [SCENES]: a distilled gain for a model as it is, and what it costs on all test images.

DATA is a set as `--data arrays` reads it, whose test images chose nothing of the model. MODEL is a bundled model or a model's folder, OUT a
new folder for the model with its gain. It learns from SCENES training images, 10,000 if not given. Printed are, by look, accuracy with the
exact and with the distilled gain, the difference scene by scene with its 95 % interval, and along the looks of the distilled gain the mean
regret: how much less exact gain, in nats, the place has that it chooses than the best; beside it that of a place at random.
"""

from __future__ import annotations

from script import called

from infogaze.data.options import ReadOptions
from infogaze.data.registry import load_set
from infogaze.models import load
from infogaze.tasks.distil import distil, tried

_BATCH_SIZE = 200


def main(data: str, model: str, out: str, scenes: str = "10000") -> None:
    """Distil, try, print a line for each look."""
    agent = load(model)
    grid = agent.model.grid
    images = load_set("arrays", data, ReadOptions(size=(grid.height, grid.width)))
    distil(model, images=images.train.images, num_scenes=int(scenes), out=out, batch_size=_BATCH_SIZE)
    trial = tried(load(out), images.test, seed=0, batch_size=_BATCH_SIZE)
    print(f"{model}, {int(scenes)} training scenes, {trial.exact.n} test scenes", flush=True)
    print("look: regret in nats (at random), accuracy exact and distilled, difference (half width)")
    for look in range(len(trial.exact.value)):
        exact, distilled, cost = (100 * float(of.value[look]) for of in (trial.exact, trial.distilled, trial.cost))
        half = 50 * float(trial.cost.high[look] - trial.cost.low[look])
        lost = "-" if look == 0 else f"{trial.regret[look - 1]:.4f} ({trial.at_random[look - 1]:.4f})"
        print(f"{look}: {lost}, {exact:.2f} and {distilled:.2f}, {-cost:+.2f} ({half:.2f})", flush=True)


if __name__ == "__main__":
    called(main, __doc__)
