"""Importance sampling: figures worked out by hand, unbiasedness by enumeration, what is refused, and coverage in a simulator."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from benchmarks.ope_coverage import Cell, Setting, truth, weighed

from logforge.core.intervals import Span
from logforge.learning.ope import importance_sampling as imp
from logforge.learning.ope.importance_sampling import ESTIMATORS, Payments, importance
from logforge.schemas.errors import Mismatch
from logforge.schemas.transition import PROPENSITY_KINDS
from support import made_chain as chain

GAMMA, WIDE = 0.5, Span(-100, 100)
GO, STAY = chain.FORWARD, chain.IDLE[0]


def episodes(actions, rewards, propensities, terminal=None):
    """Episodes of two steps: rows of actions, rewards and propensities [E, 2]."""
    count = len(actions)
    part = chain.walk(count, 1.0, limit=2)
    flat = np.asarray(propensities, np.float32).ravel()
    last = np.tile([False, True], count)
    true_end = last & np.repeat([True] * count if terminal is None else terminal, 2)
    kinds = np.full(2 * count, PROPENSITY_KINDS.index("logged"), np.int8)
    return replace(
        part,
        actions=np.asarray(actions, np.int32).ravel(),
        rewards=np.asarray(rewards, np.float32).ravel(),
        propensities=flat,
        propensity_kinds=kinds,
        terminals=true_end,
        timeouts=last & ~true_end,
    )


def chances(held, forward):
    """A policy that goes forward with this chance and else stays, at every observation."""
    found = np.zeros(held.masks.shape)
    found[:, GO], found[:, STAY] = forward, 1 - forward
    return found


def points(held, policy, q=None):
    """The six values, undisturbed by what is refused."""
    weights = np.cumprod(imp._grid(held, imp._ratios(held, policy), 1.0), axis=1)
    one, found = np.ones((1, held.episode_count)), {}
    for name in ESTIMATORS:
        paid = imp._payments(
            name, held, weights, policy, np.zeros(held.masks.shape) if q is None else q, GAMMA
        )
        found[name] = float((paid.normalised(one) if name[0] == "w" else paid.plain(one))[0])
    return found


def test_two_episodes_of_two_steps_by_hand():
    """Ratios: 1.6 and 1.6; 1.6 and 0.4. Weights 1.6, 2.56; 1.6, 0.64."""
    held = episodes([[GO, GO], [GO, STAY]], [[1, 2], [3, 4]], [[0.5, 0.5], [0.5, 0.5]])
    found = points(held, chances(held, 0.8))
    assert found["is"] == pytest.approx((2.56 * 2 + 0.64 * 5) / 2)
    assert found["wis"] == pytest.approx((2.56 * 2 + 0.64 * 5) / (2.56 + 0.64))
    assert found["pdis"] == pytest.approx((1.6 * 1 + 2.56 * 0.5 * 2 + 1.6 * 3 + 0.64 * 0.5 * 4) / 2)
    assert found["wpdis"] == pytest.approx(2 + 0.5 * (2.56 * 2 + 0.64 * 4) / 3.2)


def test_doubly_robust_by_hand_and_through_a_cut():
    """Q is 1 for going and 0 for staying wherever one is, so V = 0.8; the second episode is cut off and goes on with V."""
    held = episodes([[GO, GO], [GO, STAY]], [[1, 2], [3, 4]], [[0.5, 0.5], [0.5, 0.5]], [True, False])
    q = np.zeros(held.masks.shape)
    q[:, GO] = 1
    missed = [[1 + 0.5 * 0.8 - 1, 2 - 1], [3 + 0.5 * 0.8 - 1, 4 + 0.5 * 0.8 - 0]]
    found = points(held, chances(held, 0.8), q)
    first = 0.8 + 1.6 * missed[0][0] + 0.5 * 2.56 * missed[0][1]
    second = 0.8 + 1.6 * missed[1][0] + 0.5 * 0.64 * missed[1][1]
    assert found["dr"] == pytest.approx((first + second) / 2)
    weighted = (missed[0][0] + missed[1][0]) / 2 + 0.5 * (2.56 * missed[0][1] + 0.64 * missed[1][1]) / 3.2
    assert found["wdr"] == pytest.approx(0.8 + weighted)
    assert found["is"] == pytest.approx((2.56 * 2 + 0.64 * 5) / 2)  # the cut one as far as it was logged


def test_without_a_model_the_doubly_robust_are_per_decision():
    held = episodes([[GO, GO], [STAY, GO]], [[1, 2], [3, 4]], [[0.5, 0.3], [0.5, 0.7]])
    found = points(held, chances(held, 0.6))
    assert found["dr"] == pytest.approx(found["pdis"])
    assert found["wdr"] == pytest.approx(found["wpdis"])


@pytest.mark.parametrize("seed", [0, 1])
def test_on_all_that_can_be_logged_the_unweighted_are_exact(seed):
    """A world of two steps, enumerated: rewards hang on both actions. Each log of one episode, by its chance."""
    rng = np.random.default_rng(seed)
    logged, target, first, second = (
        rng.random(2) * 0.8 + 0.1,
        rng.random(2),
        rng.random(2),
        rng.random((2, 2)),
    )
    expected, truly = dict.fromkeys(("is", "pdis", "dr"), 0.0), 0.0
    for a, b in product((0, 1), repeat=2):
        chance = np.where([a, b], logged, 1 - logged)
        aimed = np.where([a, b], target, 1 - target)
        held = episodes([[GO if a else STAY, GO if b else STAY]], [[first[a], second[a, b]]], [chance])
        policy = chances(held, np.array([*target, 0.3]))
        q = np.random.default_rng(9).random(held.masks.shape)
        found = points(held, policy, q)
        truly += aimed.prod() * (first[a] + GAMMA * second[a, b])
        for name in expected:
            expected[name] += chance.prod() * found[name]
    assert expected == pytest.approx(dict.fromkeys(expected, truly), abs=1e-6)


def test_the_log_judged_by_itself_is_its_mean_return():
    held = chain.walk(60, 0.5, 1)
    propensities = np.where(held.actions == GO, 0.5, 0.5 / len(chain.IDLE)).astype(np.float32)
    kinds = np.full(held.size, PROPENSITY_KINDS.index("known"), np.int8)
    held = replace(held, propensities=propensities, propensity_kinds=kinds)
    policy = np.zeros(held.masks.shape)
    policy[:, GO], policy[:, chain.IDLE] = 0.5, 0.5 / len(chain.IDLE)
    found = importance(held, [policy, policy], None, gamma=chain.GAMMA, span=WIDE)
    starts = held.returns[held.episode_offsets[:-1]]
    for name in ("is", "wis", "pdis", "wpdis"):
        estimate, ess = found.estimates[name]
        assert estimate.value == pytest.approx(starts.mean(), abs=1e-3)
        assert ess == pytest.approx(60)
        assert estimate.low < estimate.value < estimate.high
    assert found.estimates["dr"].estimate.reason == "there is no Q to correct"
    assert found.cap is None


def test_the_effective_size_looks_where_payments_are():
    weights = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 3.0]])
    assert Payments(weights, np.array([[1.0, 0]] * 3), np.zeros(3)).ess == pytest.approx(3)
    assert Payments(weights, np.array([[0.0, 1]] * 3), np.zeros(3)).ess == pytest.approx(1)
    assert Payments(weights, np.array([[1.0, 1]] * 3), np.zeros(3)).ess == pytest.approx(2)
    assert Payments(weights, np.zeros((3, 2)), np.zeros(3)).ess == pytest.approx(1)


def many(forward=0.5, count=40, seed=0):
    rng = np.random.default_rng(seed)
    actions = np.where(rng.random((count, 2)) < forward, GO, STAY)
    return episodes(actions, rng.random((count, 2)), np.where(actions == GO, forward, 1 - forward))


def reason_of(found):
    reasons = {one.estimate.reason for name, one in found.estimates.items() if name not in imp.ROBUST}
    assert len(reasons) == 1
    return reasons.pop()


def test_what_cannot_be_estimated_is_said():
    held = many()
    policy = chances(held, 0.6)

    def why(changed, chosen=policy):
        return reason_of(importance(changed, [chosen], None, gamma=GAMMA, span=WIDE))

    kinds = held.propensity_kinds.copy()
    kinds[:3] = PROPENSITY_KINDS.index("missing")
    assert why(replace(held, propensity_kinds=kinds)).startswith(
        "propensities of 3 of 80 decisions are missing"
    )
    assert "--estimate-propensity" in why(replace(held, propensity_kinds=kinds))
    spoilt = held.propensities.copy()
    spoilt[5] = 0
    assert "1 logged decisions have propensity 0" in why(replace(held, propensities=spoilt))
    assert "only 1 independent" in why(replace(held, groups=np.zeros(40, np.int32)))
    nowhere = np.zeros(held.masks.shape)
    nowhere[:, chain.OFFLINE] = 1
    assert why(held, nowhere).startswith("no overlap")
    few = many(forward=0.9, seed=2)
    assert why(few, chances(few, 0.02)).startswith("weights average")
    alone = np.repeat([[GO, GO], [GO, STAY], [STAY, GO], [STAY, STAY]], [4, 16, 16, 64], axis=0)
    rare = episodes(alone, np.ones((100, 2)), np.where(alone == GO, 0.2, 0.8))
    found = importance(rare, [chances(rare, 1.0)], None, gamma=GAMMA, span=WIDE).estimates["wis"]
    assert found.ess == pytest.approx(4)
    assert found.estimate.reason.startswith("an effective sample size of 4.0 of 100 episodes")
    with pytest.raises(Mismatch, match="chances"):
        importance(held, [policy[:-1]], None, gamma=GAMMA, span=WIDE)


def test_weights_of_estimated_propensities_are_cut_and_counted():
    held = many(count=60)
    found = importance(held, [chances(held, 0.9)], None, gamma=GAMMA, span=WIDE)
    assert (found.cap, found.cut) == (None, 0)
    kinds = np.full(held.size, PROPENSITY_KINDS.index("estimated"), np.int8)
    rare = np.where(np.arange(held.size) == 0, 0.01, held.propensities).astype(np.float32)
    actions = held.actions.copy()
    actions[0] = GO
    guessed = replace(held, propensity_kinds=kinds, propensities=rare, actions=actions)
    found = importance(guessed, [chances(held, 0.9)], None, gamma=GAMMA, span=WIDE)
    assert found.cap == imp.ESTIMATED_CAP
    assert 1 / held.size <= found.cut <= 2 / held.size


def test_an_interval_beyond_the_possible_is_cut_and_one_that_holds_it_all_refused():
    held = many()
    policy = chances(held, 0.6)
    free = importance(held, [policy], None, gamma=GAMMA, span=WIDE).estimates["is"].estimate
    low = (free.low + free.value) / 2
    cut = importance(held, [policy], None, gamma=GAMMA, span=Span(low, 5)).estimates["is"].estimate
    assert (cut.low, cut.high) == (low, free.high)
    tight = Span(low, (free.high + free.value) / 2)
    found = importance(held, [policy], None, gamma=GAMMA, span=tight).estimates["is"].estimate
    assert "holds all that a return can be" in found.reason
    far = Span(free.high + 1, free.high + 2)
    found = importance(held, [policy], None, gamma=GAMMA, span=far).estimates["is"].estimate
    assert "lies outside what a return can be" in found.reason


def test_groups_are_drawn_whole_and_members_too():
    held = many(count=60)
    policy = chances(held, 0.6)

    def width(changed, policies):
        found = importance(changed, policies, None, gamma=GAMMA, span=WIDE).estimates["wis"].estimate
        return found.high - found.low

    order = np.argsort(held.rewards.reshape(60, 2).sum(axis=1))
    sorted_groups = np.empty(60, np.int32)
    sorted_groups[order] = np.arange(60) // 3
    assert width(replace(held, groups=sorted_groups), [policy]) > 1.3 * width(held, [policy])
    other = chances(held, 0.2)
    assert width(held, [policy, other]) > width(held, [policy])


def test_intervals_hold_the_exact_value_about_as_often_as_they_say_and_shrink():
    """A small version of benchmarks/ope_coverage.py: 100 logs of the simulator, and 20 larger ones."""
    few, more = (Setting("support-escalation", "rule-10", "rule", size) for size in (40, 160))
    answers = [weighed(few, 7_000 + seed) for seed in range(100)]
    larger = [weighed(more, 8_000 + seed) for seed in range(20)]
    value = truth("support-escalation", "rule")
    for name in answers[0]:
        cell = Cell.of([one[name] for one in answers], value)
        assert cell.answered == 1
        assert 0.88 <= cell.held <= 1.0
        assert Cell.of([one[name] for one in larger], value).width < 0.65 * cell.width


def test_a_log_that_lacks_what_the_policy_does_is_refused_rather_than_guessed():
    """Random logs hold next to nothing of a policy with a plan; what weights there are would pass for an effective sample."""
    answers = [weighed(Setting("it-ops", "random", "rule-40", 100), 9_000 + seed) for seed in range(20)]
    for name in ("is", "wis", "pdis"):
        assert Cell.of([one[name] for one in answers], truth("it-ops", "rule-40")).answered <= 0.2


def test_a_learner_is_refused_for_its_worst_member():
    """A member without any overlap would count as worth 0."""
    held = many(count=200)
    good, lost = chances(held, 0.6), np.zeros(held.masks.shape)
    lost[:, chain.OFFLINE] = 1
    found = importance(held, [good, good, lost], None, gamma=GAMMA, span=WIDE)
    assert not found.known
    assert reason_of(found).startswith("no overlap: ")
    assert "(member 3 of 3)" in reason_of(found)
    skewed = chances(held, 0.05)
    skewed[:, [GO, STAY]] /= 3  # what it does else was never logged
    told = reason_of(importance(held, [good, skewed], None, gamma=GAMMA, span=WIDE))
    assert told.startswith("weights average 0.1")
    assert told.endswith("the policy (member 2 of 2) does")


def test_the_effective_size_is_that_of_the_worst_member():
    alone = np.repeat([[GO, GO], [GO, STAY], [STAY, GO], [STAY, STAY]], [4, 16, 16, 64], axis=0)
    rare = episodes(alone, np.random.default_rng(0).random((100, 2)), np.where(alone == GO, 0.2, 0.8))
    policies = [chances(rare, chance) for chance in (0.2, 1.0)]
    assert importance(rare, policies[:1], None, gamma=GAMMA, span=WIDE).estimates["wis"].estimate.low
    found = importance(rare, policies, None, gamma=GAMMA, span=WIDE).estimates["wis"]
    assert found.ess == pytest.approx(4)
    assert found.estimate.reason.startswith("an effective sample size of 4.0 of 100 episodes (member 2 of 2)")


def test_few_members_that_differ_are_covered_as_they_should(monkeypatch):
    """Members go forward with chance 0.5 ± 0.1 and are paid for it. The variance of a bootstrap of two of them would be half."""
    monkeypatch.setattr(imp, "RESAMPLES", 200)
    for count, promised in ((2, 0.85), (3, 0.9)):
        rng, held = np.random.default_rng(count), []
        for seed in range(100):
            log = many(count=200, seed=seed)
            log = replace(log, rewards=(log.actions == GO).astype(np.float32))
            policies = [chances(log, chance) for chance in np.clip(rng.normal(0.5, 0.1, count), 0.2, 0.8)]
            found = importance(log, policies, None, gamma=GAMMA, span=WIDE).estimates["wpdis"].estimate
            held.append(found.low <= 0.5 * (1 + GAMMA) <= found.high)
        assert np.mean(held) >= promised


def test_members_that_agree_widen_nothing():
    held = many(count=60)
    policy = chances(held, 0.6)
    alone, same = (importance(held, [policy] * n, None, gamma=GAMMA, span=WIDE).known for n in (1, 3))
    for name in alone:
        assert same[name] == pytest.approx(alone[name])
