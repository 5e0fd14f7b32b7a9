from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from infogaze import Belief, build
from infogaze.nn.classifier import Classifier
from tests.support.parts import TINY, normal, used


@pytest.mark.parametrize("training", [False, True])
def test_class_probabilities_are_the_softmax_of_one_linear_layer(training: bool) -> None:
    # In training too: what dropout takes away is drawn there, not here, so a lookahead never has any.
    classifier = used(Classifier(6, 3)).train(training)
    hidden = normal(50, 6)
    expected = (hidden @ classifier.linear.weight.T + classifier.linear.bias).softmax(-1)
    torch.testing.assert_close(classifier(hidden).exp(), expected)


@pytest.mark.parametrize("shape", [(), (2,), (4, 3), (0,), (0, 5), (2, 3, 4)], ids=str)
def test_beliefs_may_have_any_leading_dimensions_and_be_none(shape: tuple[int, ...]) -> None:
    classifier, hidden = used(Classifier(6, 3)), normal(*shape, 6)
    found = classifier(hidden)
    assert found.shape == (*shape, 3)
    torch.testing.assert_close(found, classifier.linear(hidden).log_softmax(-1))


@pytest.mark.parametrize("hops", [0, 1, 3])
@torch.no_grad()
def test_a_map_has_no_randomness_but_the_noise_it_is_given(hops: int) -> None:
    model = used(build(replace(TINY, attention_hops=hops)))
    belief, noise = Belief(normal(2, 6), model.backbone.start(2).memory), normal(2, 3, 4, seed=1)
    before = torch.get_rng_state()
    first = model.gain(belief, 3, noise=noise)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(model.gain(belief, 3, noise=noise), first)
    assert not torch.equal(model.gain(belief, 3, noise=noise + 1), first)


# On some processors oneDNN's bfloat16 products of small shapes fail; switching it off warns about TF32, which is not used.
@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_class_probabilities_are_precise_in_half_precision_too(dtype: torch.dtype) -> None:
    with torch.backends.mkldnn.flags(enabled=False):
        log_probabilities = used(Classifier(6, 3)).to(dtype)(normal(4, 6).to(dtype))
    assert log_probabilities.dtype == torch.float32
    torch.testing.assert_close(log_probabilities.exp().sum(-1), torch.ones(4))
