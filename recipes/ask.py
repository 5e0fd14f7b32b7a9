"""python recipes/ask.py QUESTION DATA SCENES MODEL [OTHER...]: how many looks answer a question, when looking for it or for the classes.

QUESTION is bright-frame (is the edge of the scene bright?), blue-above (is it bluer above than below?), or names of classes with commas
between: is it one of these? DATA is a set as `--data arrays` reads it; its first SCENES test images are looked at. MODEL, a bundled model
or a model's folder that imagines, looks for the question, for the classes and at random. Each OTHER, a model's folder, looks as it does.

Each model answers from its own belief: by its classes, or by a linear head, learned on its beliefs after random looks at training images,
while nothing of the model changes. A line says, by look, the accuracy in % and the negative log-likelihood in nats, and the mean number of
looks until an answer has 95 % of the probability, one more than the budget where none has.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from script import called
from torch import Tensor, nn
from torch.nn import functional

import infogaze
from infogaze.data.options import ReadOptions
from infogaze.data.registry import load_set
from infogaze.data.sets import Split
from infogaze.evaluation.rollouts import roll_out

_TRAINED_ON, _STEPS, _SCENES_A_STEP, _LEARNING_RATE = 10_000, 1500, 512, 3e-3
_EDGE, _SURE, _AT_ONCE = 4, 0.95, 250

Answers = Callable[[Tensor], Tensor]
"""From hidden states to log p of no and of yes."""


def bright_frame(images: Tensor) -> Tensor:
    """The mean of the outermost pixels."""
    inside = torch.zeros(images.shape[-2:], dtype=torch.bool)
    inside[_EDGE:-_EDGE, _EDGE:-_EDGE] = True
    return images.float().mean(1)[:, ~inside].mean(1)


def blue_above(images: Tensor) -> Tensor:
    """How much more blue than red the upper third has, less the same of the lower third."""
    third, blue = images.shape[-2] // 3, images[:, 2].float() - images[:, 0].float()
    return blue[:, :third].mean((1, 2)) - blue[:, -third:].mean((1, 2))


OF_PIXELS = {"bright-frame": bright_frame, "blue-above": blue_above}
"""Whether this is above its median over training images."""


def main(question: str, data: str, scenes: str, model: str, *others: str) -> None:
    """Print a line for each way of looking."""
    agent = infogaze.load(model)
    grid = agent.model.grid
    images = load_set("arrays", data, ReadOptions(size=(grid.height, grid.width)))
    if question not in OF_PIXELS and not set(question.split(",")) <= set(images.classes):
        raise ValueError(f"{question}: neither {', '.join(OF_PIXELS)} nor some of {', '.join(images.classes)}")
    train, some = _first(images.train, _TRAINED_ON), _first(images.test, int(scenes))
    train_truth, truth = (_truth(question, split, train, images.classes) for split in (train, some))
    print(f"{question}: {100 * float(truth.double().mean()):.1f} % of {len(some)} scenes", flush=True)
    if question in OF_PIXELS:
        answer = _head(agent, train.images, train_truth)
        asked = agent.ask(answer, ["no", "yes"])
    else:
        answer = _of_classes(agent, question)
        asked = agent.ask({"no": None, "yes": question.split(",")})
    for name, looker in (
        ("the question", asked),
        ("the classes", agent),
        ("nothing, at random", agent.with_policy(infogaze.RandomPolicy())),
    ):
        _tell(
            f"{model}, looks for {name}", answer(_hidden(agent, some.images, roll_out(looker, some).locations)), truth
        )
    for name in others:
        other = infogaze.load(name)
        own = _head(other, train.images, train_truth) if question in OF_PIXELS else _of_classes(other, question)
        _tell(f"{name}, as it looks", own(_hidden(other, some.images, roll_out(other, some).locations)), truth)


def _first(split: Split, count: int) -> Split:
    return Split(split.images[:count], split.labels[:count])


def _truth(question: str, split: Split, train: Split, classes: tuple[str, ...]) -> Tensor:
    """1 for yes, 0 for no, a scene."""
    if question in OF_PIXELS:
        measured = OF_PIXELS[question]
        return (measured(split.images) > measured(train.images).median()).long()
    return torch.isin(split.labels, torch.tensor([classes.index(name) for name in question.split(",")])).long()


@torch.no_grad()
def _hidden(agent: infogaze.Agent, images: Tensor, locations: Tensor) -> Tensor:
    """The belief's hidden state after each of these looks, [N, T, h]."""
    parts = []
    for scenes, looks in zip(images.split(_AT_ONCE), locations.split(_AT_ONCE), strict=True):
        sensor = infogaze.ImageSensor(scenes, agent.model.grid.glimpse_size)
        episode = agent.episode(len(scenes), budget=looks.shape[1])
        for where in looks.unbind(1):
            episode.observe(sensor.look(where), at=where)
        parts.append(torch.stack([look.hidden for look in episode.history], 1))
    return torch.cat(parts)


def _head(agent: infogaze.Agent, images: Tensor, truth: Tensor) -> nn.Module:
    """A linear head on the belief that says yes or no, after any number of random looks."""
    grid, looks = agent.model.grid, min(agent.num_looks, agent.model.grid.num_locations)
    order = infogaze.SceneNoise(infogaze.scene_seeds(0, len(images)), 0).uniform(grid.num_locations)
    hidden = _hidden(agent, images, grid.locations()[order.topk(looks).indices])  # [N, T, h]
    head = nn.Sequential(nn.LayerNorm(hidden.shape[-1], elementwise_affine=False), nn.Linear(hidden.shape[-1], 2))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        head[1].weight.zero_()
    optimiser = torch.optim.AdamW(head.parameters(), _LEARNING_RATE)
    for step in range(_STEPS):
        optimiser.param_groups[0]["lr"] = _LEARNING_RATE * (1 - step / _STEPS)
        chosen = torch.randint(len(hidden), (min(_SCENES_A_STEP, len(hidden)),), generator=generator)
        said = head(hidden[chosen]).flatten(0, 1)
        optimiser.zero_grad()
        functional.cross_entropy(said, truth[chosen].repeat_interleave(looks)).backward()
        optimiser.step()
    return head.eval().requires_grad_(False)


def _of_classes(agent: infogaze.Agent, question: str) -> Answers:
    yes = torch.tensor([name in question.split(",") for name in agent.classes])

    def answer(hidden: Tensor) -> Tensor:
        classes = agent.model.backbone.classify(infogaze.Belief(hidden, hidden[..., :0]))
        return torch.stack([classes[..., ~yes].logsumexp(-1), classes[..., yes].logsumexp(-1)], -1)

    return answer


@torch.no_grad()
def _tell(name: str, said: Tensor, truth: Tensor) -> None:
    likely = said.log_softmax(-1)  # [N, T, 2]
    right = 100 * (likely.argmax(-1) == truth[:, None]).double().mean(0)
    loss = -likely.gather(2, truth[:, None, None].expand(-1, likely.shape[1], 1)).double().mean((0, 2))
    sure = likely.exp().amax(-1) >= _SURE
    first = torch.where(sure.any(1), sure.int().argmax(1) + 1, likely.shape[1] + 1).double().mean()
    accuracy, nats = (
        " ".join(f"{value:.{digits}f}" for value in values.tolist()) for values, digits in ((right, 1), (loss, 3))
    )
    print(f"{name}: {accuracy} %; {nats} nats; {float(first):.2f} looks", flush=True)


if __name__ == "__main__":
    called(main, __doc__)
