"""python recipes/stopping.py DATA MODEL...: what calibrated stop rules do for models as they are.

DATA is a set as `--data arrays` reads it, whose test images chose nothing of the models. MODEL is a bundled model or a model's folder.
Rules are calibrated on 500 random halves of the images and tried on the others, as `infogaze evaluate --measure early-stopping` does:
at most 1 % of the scenes lost, with probability 95 %. A line says mean looks, accuracy, that after all looks, that of a fixed number of
looks with the same mean, and the share of halves that broke the promise; each but the last with its standard deviation over halves.
"""

from __future__ import annotations

from script import called
from torch import Tensor

import infogaze
from infogaze.data.options import ReadOptions
from infogaze.data.registry import load_set
from infogaze.evaluation.early_stopping import FORMS, STOP_RULES, early_stopping
from infogaze.evaluation.estimates import accuracy_of_mean
from infogaze.evaluation.exact_pass import exact_pass
from infogaze.evaluation.measurement import Subject
from infogaze.evaluation.risk_control import can_be_read

_BATCH_SIZE = 200


def main(data: str, first: str, *more: str) -> None:
    """Print a line for each rule and form, and before them the accuracy by look, for each model."""
    for name in (first, *more):
        agent = infogaze.load(name)
        assert agent.origin is not None
        grid = agent.model.grid
        test = load_set("arrays", data, ReadOptions(size=(grid.height, grid.width))).test
        method = infogaze.METHODS[agent.origin.method]
        records = exact_pass(
            Subject(agent=agent, method=method, test=test, num_scenes=len(test), seed=0, batch_size=_BATCH_SIZE)
        )
        by_look = records.correct.double().mean(0)
        print(f"{name}, {len(test)} scenes: {' '.join(f'{100 * value:.1f}' for value in by_look.tolist())}", flush=True)
        found = early_stopping(records)
        for number, rule in enumerate(STOP_RULES):
            if not can_be_read(records, rule):
                continue
            for form, share in enumerate(FORMS):
                looks = found.looks[number, form].double()
                fixed = 100 * accuracy_of_mean(by_look, float(looks.mean()))
                print(
                    f"{rule}, gap {share}: {_told(looks)} looks, {_told(100 * found.accuracy[number, form])} %, after all "
                    f"{_told(100 * found.full[number, form])} %, fixed {fixed:.1f} %, "
                    f"broken {100 * float(found.broken[number, form].double().mean()):.1f} %, "
                    f"on the other half {100 * float(found.broken_on_half[number, form].double().mean()):.1f} %",
                    flush=True,
                )


def _told(values: Tensor) -> str:
    return f"{float(values.mean()):.2f} ({float(values.std()):.2f})"


if __name__ == "__main__":
    called(main, __doc__)
