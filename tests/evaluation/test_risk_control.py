from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from mapie.risk_control import control_fwer
from mapie.risk_control.methods import compute_hoeffding_bentkus_p_value
from scipy import stats

from infogaze import ImageSensor, InfogazeError
from infogaze.data.sets import Split
from infogaze.evaluation.early_stopping import risk
from infogaze.evaluation.exact_pass import Records, expected_of_looks
from infogaze.evaluation.risk_control import (
    Outcomes,
    calibrated,
    candidates,
    fewest_scenes,
    looks_by,
    loosest_safe,
    outcomes,
    p_value,
    thresholds_by_look,
)
from infogaze.evaluation.rollouts import roll_out
from infogaze.gaze.stopping import RULES, RuleName
from infogaze.rng import scene_seeds
from tests.support.tiny import CONFIG, scenes, tiny_agent

GAP, DELTA = 0.05, 0.1
RULE_NAMES: tuple[RuleName, ...] = tuple(RULES)


def population(count: int = 4000, looks: int = 5, seed: int = 0) -> Outcomes:
    """Scenes of which everything is known: easy ones are sure and correct early, and some are sure and wrong."""
    generator = torch.Generator().manual_seed(seed)
    ease = torch.rand(count, 1, generator=generator, dtype=torch.float64)
    progress = torch.linspace(0.3, 1.0, looks, dtype=torch.float64)
    sureness = (
        0.6 * ease + 0.4 * progress + 0.1 * torch.rand(count, looks, generator=generator, dtype=torch.float64)
    ) / 1.1
    correct = torch.rand(count, 1, generator=generator, dtype=torch.float64) < 1 - (1 - sureness) ** 3
    return Outcomes(sureness=sureness[:, :-1], correct=correct)


def records_of(found: Outcomes, num_classes: int = 4) -> Records:
    """An exact pass whose largest probability is the sureness; the label is 0, and what is wrong is predicted as 1."""
    count, looks = found.correct.shape
    sure = torch.cat([found.sureness, torch.ones(count, 1, dtype=torch.float64)], 1).clamp(0.3, 1 - 1e-9)
    predictions = (~found.correct).long()
    rest = ((1 - sure) / (num_classes - 1))[..., None].expand(-1, -1, num_classes)
    probabilities = rest.scatter(2, predictions[..., None], sure[..., None])
    return Records(
        labels=torch.zeros(count, dtype=torch.int64),
        locations=torch.zeros(count, looks, 2, dtype=torch.int64),
        predictions=predictions,
        log_probabilities=probabilities.log(),
        expected=torch.zeros(count, looks),
    )


def test_a_p_value_is_the_exact_tail_within_hoeffding_and_bentkus() -> None:
    for scenes_, gap in ((50, 0.1), (1000, 0.01), (5000, 0.02)):
        lost = np.arange(0, int(gap * scenes_))
        exact = p_value(lost, scenes_, gap)
        just_below = np.maximum(lost - 1e-6, 0.0) / scenes_  # it rounds a share up to whole scenes
        bound = compute_hoeffding_bentkus_p_value(just_below, scenes_, gap)
        bound = np.asarray(bound, dtype=np.float64).reshape(exact.shape)
        assert (exact <= bound * (1 + 1e-9)).all()
        assert (bound <= math.e * exact * (1 + 1e-6)).all()  # Bentkus is e times the exact tail


@pytest.mark.parametrize("seed", range(5))
def test_the_loosest_safe_level_is_the_last_that_a_fixed_sequence_rejects(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lost = np.maximum(np.cumsum(rng.integers(0, 3, 60)) + rng.integers(-2, 3, 60), 0)
    found = loosest_safe(lost, 1000, gap=GAP, delta=DELTA)
    rejected = np.asarray(control_fwer(p_value(lost, 1000, GAP), DELTA, fwer_method="fixed_sequence")).ravel()
    assert found == (rejected.max() if len(rejected) else -1)
    assert 0 < found < 59, "the case is in the data"


@pytest.mark.parametrize(("gap", "delta"), [(0.01, 0.05), (0.02, 0.1), (0.3, 0.3)])
def test_so_few_scenes_show_something_and_one_fewer_nothing(gap: float, delta: float) -> None:
    needed = fewest_scenes(gap, delta)
    assert p_value(0, needed, gap) <= delta < p_value(0, needed - 1, gap)


def test_too_few_scenes_are_refused_with_the_number_that_is_needed() -> None:
    few = records_of(population(298))
    with pytest.raises(
        InfogazeError, match=r"298 scenes are too few: a gap of 0.01 with delta 0.05 needs at least 299"
    ):
        calibrated(few, "confidence", gap=0.01, delta=0.05)
    with pytest.raises(InfogazeError, match="needs at least 598"):
        calibrated(few, "confidence", gap=0.01, delta=0.05, by_look=True)
    calibrated(records_of(population(299)), "confidence", gap=0.01, delta=0.05)


def test_a_gain_that_no_policy_expected_cannot_be_calibrated() -> None:
    with pytest.raises(InfogazeError, match="'gain' needs a policy with a map"):
        calibrated(records_of(population()), "gain", gap=GAP, delta=DELTA)


@pytest.mark.slow
@pytest.mark.parametrize("by_look", [False, True], ids=["of all", "by look"])
def test_over_calibration_sets_the_promise_is_broken_no_more_often_than_was_said(by_look: bool) -> None:
    """Drawn from a population whose every scene is known, so that the share that is lost is known too."""
    everyone, trials = population(), 300
    levels = candidates("confidence", 4)
    lost = everyone.lost(everyone.looks_used_at(levels))
    generator = torch.Generator().manual_seed(7)
    broken, looks = 0, []
    for _ in range(trials):
        drawn = torch.randint(0, len(everyone.correct), (1000,), generator=generator)
        if by_look:
            chosen = thresholds_by_look(everyone[drawn], gap=GAP, delta=DELTA)
            thresholds = torch.tensor([math.inf if value is None else value for value in chosen], dtype=torch.float64)
        else:
            at = loosest_safe(lost[drawn].sum(0).numpy(), 1000, gap=GAP, delta=DELTA)
            thresholds = levels[at].expand(4)
        used = everyone.looks_used(thresholds)
        broken += risk(everyone, used, by_look=by_look) > GAP
        looks.append(float(used.double().mean()))
    # More would come with a probability below a thousandth, if the share were delta.
    assert broken <= stats.binom.ppf(0.999, trials, DELTA)
    assert np.mean(looks) < 4.5, "it stops early, or nothing was shown"


def test_what_holds_of_all_scenes_may_fail_for_those_that_stop_first() -> None:
    """Few scenes, very sure and all wrong at first, are lost within the gap of all, and are all of the first that stop."""
    generator = torch.Generator().manual_seed(1)
    sureness = 0.5 + 0.4 * torch.rand(4000, 2, generator=generator, dtype=torch.float64)
    correct = torch.ones(4000, 3, dtype=torch.bool)
    tricky = torch.arange(4000) % 100 == 0
    sureness[tricky, 0], correct[tricky, :2] = 0.99, False
    sureness[~tricky, 0], correct[~tricky, 0] = 0.7 * sureness[~tricky, 0], False
    found = Outcomes(sureness=sureness, correct=correct)
    records = records_of(found)
    for by_look, first in ((False, 1.0), (True, 0.0)):
        stop = calibrated(records, "confidence", gap=GAP, delta=DELTA, by_look=by_look)
        used = looks_by(stop, records)
        assert float((used[tricky] == 1).double().mean()) == first
        assert (risk(found, used, by_look=True) > GAP) == (not by_look)
        assert float(used.double().mean()) < 3, "it stops early"


@pytest.mark.parametrize("rule", RULE_NAMES)
def test_an_episode_stops_where_the_records_say(rule: RuleName) -> None:
    agent, images = tiny_agent(seed=4), scenes(60)
    split = Split(images, torch.arange(60) % CONFIG.num_classes)
    seeds = scene_seeds(3, 60)
    looked = roll_out(agent, split, seed=seeds)
    records = Records(
        labels=split.labels,
        locations=looked.locations,
        predictions=looked.predictions,
        log_probabilities=looked.log_probabilities,
        expected=expected_of_looks(looked, agent.model.grid),
    )
    stop = calibrated(records, rule, gap=0.3, delta=0.3)
    middle = outcomes(records, rule).sureness.median()
    threshold = float(middle if rule == "confidence" else -middle)
    for thresholds in (stop.thresholds, (None, threshold, threshold)):
        given = replace(stop, thresholds=thresholds)
        episode = agent.with_stop(given).run(ImageSensor(images, CONFIG.glimpse_size), batch=60, seed=seeds)
        differ = episode.looks_taken != looks_by(given, records)
        # At a scene exactly on the threshold one of them may round the other way.
        assert int(differ.sum()) <= 1
    assert 1 < float(episode.looks_taken.double().mean()) < 4, "some stop and some do not"


def test_the_candidates_go_from_strict_to_loose_and_know_no_scene() -> None:
    for rule in RULE_NAMES:
        levels = candidates(rule, 10)
        assert bool((levels.diff() < 0).all())
        assert levels.dtype == torch.float64
    assert float(candidates("confidence", 10)[-1]) == pytest.approx(0.1)
    assert float(candidates("entropy", 10)[-1]) == pytest.approx(-math.log(10))
