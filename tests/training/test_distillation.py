"""A gain is distilled: what is gathered of an agent's maps, what is learned of them, and what it costs."""

from __future__ import annotations

import torch
from torch import Tensor

import infogaze
from infogaze import Agent, GainPolicy, RandomPolicy
from infogaze.data.registry import load_set
from infogaze.nn.distilled import DistilledGain
from infogaze.nn.gain import class_entropy, coherent_information
from infogaze.training.distillation import Taught, distilled_from, maps_along_looks, regret
from tests.support.exported import looking
from tests.support.methods import LOOKS
from tests.support.tiny import CONFIG, scenes

COUNT = 10


def gathered(**given: object) -> tuple[Agent, Taught]:
    agent = looking("dictionary")
    return agent, maps_along_looks(agent, scenes(COUNT), seed=0, batch_size=4, **given)  # type: ignore[arg-type]


@torch.no_grad()
def test_beliefs_come_with_the_maps_that_the_agent_draws_of_them() -> None:
    agent, taught = gathered()
    assert len(taught.hidden) == COUNT * (LOOKS - 1)
    assert sorted(taught.looks.unique().tolist()) == [1, 2, 3]
    policy, model = agent.policy, agent.model
    assert isinstance(policy, GainPolicy)
    belief = infogaze.Belief(taught.hidden, taught.hidden[:, :0])
    noise = torch.zeros(len(taught.hidden), 0)
    gain = model.get_submodule("").gain(belief, policy.num_samples, noise=noise, criterion=coherent_information)  # type: ignore[operator]
    torch.testing.assert_close(taught.gain, gain, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(taught.entropy, class_entropy(model.backbone.classify(belief)))
    assert torch.equal(taught.candidates.sum(1), CONFIG.grid.num_locations - taught.looks)
    assert taught.gain.std(0).min() > 1e-6, "beliefs differ"


def test_some_looks_go_astray_and_the_same_ones_every_time() -> None:
    beliefs: dict[float, Tensor] = {share: gathered(astray=share)[1].hidden for share in (0.0, 0.5, 1.0)}
    assert not torch.equal(beliefs[0.0], beliefs[0.5])
    assert not torch.equal(beliefs[0.5], beliefs[1.0])
    assert torch.equal(gathered(astray=0.5)[1].hidden, beliefs[0.5])


def test_the_looks_of_another_policy_are_followed_with_the_maps_of_the_agent() -> None:
    agent, own = gathered(astray=0.0)
    assert isinstance(agent.policy, GainPolicy)
    _, same = gathered(astray=0.0, follow=agent.policy)
    torch.testing.assert_close(own.hidden, same.hidden)
    _, other = gathered(astray=0.0, follow=RandomPolicy())
    assert torch.equal(own.hidden[:4], other.hidden[:4]), "the first look is the same"
    assert not torch.equal(own.hidden, other.hidden)


def test_regret_is_what_the_best_place_that_may_be_chosen_has_more() -> None:
    class Said(DistilledGain):
        def forward(self, hidden: Tensor, entropy: Tensor) -> Tensor:
            return hidden

    taught = Taught(
        hidden=torch.tensor([[0.0, 3.0, 2.0], [5.0, 1.0, 0.0], [0.0, 0.0, 9.0]]),
        entropy=torch.ones(3),
        gain=torch.tensor([[0.5, 0.1, 0.2], [0.9, 0.3, 0.4], [0.1, 0.2, 0.6]]),
        candidates=torch.tensor([[True, True, True], [False, True, True], [True, True, True]]),
        looks=torch.ones(3, dtype=torch.int64),
    )
    torch.testing.assert_close(regret(Said(3, 3), taught), torch.tensor([0.4, 0.1, 0.0]))


def test_what_is_learned_of_digits_looks_nearly_as_well_where_it_was_not_taught() -> None:
    agent, images = infogaze.load("digits"), load_set("digits")
    taught = maps_along_looks(agent, images.train.images[:400], seed=0, batch_size=200)
    gain = distilled_from(taught, epochs=30, seed=0)
    new = maps_along_looks(agent, images.test.images[:100], seed=1, batch_size=100, astray=0.0)
    best = new.gain.masked_fill(~new.candidates, -torch.inf).amax(1)
    at_random = best - new.gain.masked_fill(~new.candidates, 0.0).sum(1) / new.candidates.sum(1)
    usual = taught.gain.mean(0)  # of the places, whatever the belief
    chosen = usual.expand_as(new.gain).masked_fill(~new.candidates, -torch.inf).argmax(1)
    by_place = best - new.gain.gather(1, chosen[:, None]).squeeze(1)
    lost = regret(gain, new).mean()
    assert lost < 0.2 * at_random.mean()
    assert lost < 0.5 * by_place.mean(), "it reads the belief"
    again = distilled_from(taught, epochs=30, seed=0)
    assert all(torch.equal(one, other) for one, other in zip(gain.parameters(), again.parameters(), strict=True))
