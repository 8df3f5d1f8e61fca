"""FQE against the known values of the chain MDP, and the arithmetic around it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.core import extras, intervals
from logforge.learning.ope import fqe as ope
from logforge.learning.ope import fqe_fit
from logforge.rewards import returns
from logforge.schemas.errors import UsageError
from support import made_chain as chain
from support.made_chain import ALLOWED, FORWARD, GAMMA, IDLE

SPAN = intervals.Span(-10, 9.9)


def always(held, action):
    return np.full(len(held.observations), action)


def fit(held, choices, **settings):
    return ope.fitted_q(held, choices, gamma=GAMMA, span=SPAN, **{"members": 10, "updates": 200, **settings})


@pytest.fixture(scope="module")
def mixed():
    return chain.walk(16, 0.5, 1)


def test_another_policy_than_the_logged_one_is_valued_right(mixed):
    found = fit(mixed, always(mixed, FORWARD)).estimate()
    assert found.value == pytest.approx(chain.true_value(1), abs=0.1)
    assert found.low - 0.05 <= chain.true_value(1) <= found.high + 0.05


def test_on_policy_the_interval_holds_the_truth():
    """All actions called one: the log is then that policy's own, in a world where half of the moves fail."""
    logged = chain.walk(40, 0.5, 3)
    held = replace(logged, actions=np.full_like(logged.actions, FORWARD))
    found = fit(held, always(held, FORWARD)).estimate()
    assert found.low <= chain.true_value(0.5) <= found.high
    assert found.value == pytest.approx(held.returns[held.episode_offsets[:-1]].mean(), abs=0.15)
    assert 0.1 < found.high - found.low < 1


def test_a_policy_that_goes_nowhere_is_worth_what_waiting_for_ever_costs(mixed):
    found = fit(mixed, always(mixed, IDLE[0])).estimate()
    assert found.value == pytest.approx(-10, abs=0.5)


def test_a_cut_is_no_end():
    """Episodes cut after six steps: bootstrapping finds the true value, a cut taken for an end does not."""
    held = chain.walk(50, 0.5, 4, limit=6)
    assert held.timeouts.sum() > 20
    right = fit(held, always(held, FORWARD)).estimate()
    assert right.value == pytest.approx(chain.true_value(1), abs=0.3)
    wrong = fit(replace(held, terminals=held.terminals | held.timeouts), always(held, FORWARD)).estimate()
    assert wrong.value < right.value - 0.5


def test_an_end_is_no_cut(mixed):
    """Bootstrapped through the goal, what the network dreams up behind it comes on top of the reward."""
    terminals = mixed.terminals & (np.cumsum(mixed.terminals) == 1)
    held = replace(mixed, terminals=terminals, timeouts=(mixed.terminals | mixed.timeouts) & ~terminals)
    dreamt = ope.fitted_q(
        held, always(held, FORWARD), gamma=GAMMA, span=intervals.Span(-10, 30), members=10, updates=200
    )
    assert dreamt.values.mean() > chain.true_value(1) + 1


def test_equal_seeds_give_equal_values_and_pair_the_policies(mixed):
    one, two, other = (fit(mixed, always(mixed, FORWARD), updates=20, seed=seed).values for seed in (7, 7, 8))
    assert (one == two).all()
    assert (one != other).any()
    assert len(set(one)) == 10


def test_members_differ_by_their_resamples():
    counts = intervals.resamples(np.arange(6), 20, 0)
    assert counts.shape == (20, 6)
    assert (counts.sum(axis=1) == 6).all()
    assert len({tuple(row) for row in counts}) > 10
    assert (counts == intervals.resamples(np.arange(6), 20, 0)).all()


def test_choices_after_an_end_are_not_looked_at_and_others_must_be_actions(mixed):
    choices = always(mixed, FORWARD)
    ends = mixed.observation_offsets[1:] - 1
    assert set(ends[mixed.terminals[mixed.episode_offsets[1:] - 1]]) == set(range(len(choices))) - set(
        ope.needed_rows(mixed)
    )
    spoilt = choices.copy()
    spoilt[ends] = -1
    assert (fit(mixed, spoilt, updates=5).values == fit(mixed, choices, updates=5).values).all()
    spoilt[0] = -1
    with pytest.raises(UsageError, match="choice of the policy"):
        fit(mixed, spoilt)
    spoilt[0] = mixed.action_size
    with pytest.raises(UsageError, match="choice of the policy"):
        fit(mixed, spoilt)


def test_too_little_is_refused():
    assert (
        ope.refusal(chain.walk(4, 1.0)) == "only 4 independent held-out episodes (split groups), 5 are needed"
    )
    assert ope.refusal(chain.walk(5, 1.0)) == ""
    assert ope.refusal(chain.walk(5, 1.0, limit=3)) == "no held-out episode is complete"
    few = chain.walk(4, 1.0)
    with pytest.raises(UsageError, match="only 4 independent held-out episodes"):
        fit(few, always(few, FORWARD))


def test_a_fit_that_still_moves_is_no_estimate(mixed, monkeypatch):
    monkeypatch.setattr(ope, "ROUNDS", 2)
    moving = fit(mixed, always(mixed, IDLE[0]), updates=60)
    assert moving.drift < -moving.tolerance
    assert moving.estimate().value is None
    assert "did not settle" in moving.estimate().reason


def test_a_fit_that_settled_stops_and_says_so_to_the_progress(mixed):
    ticks = []
    fit(mixed, always(mixed, FORWARD), progress=lambda *tick: ticks.append(tick))
    assert [done for done, *_ in ticks] == list(range(1, len(ticks) + 1))
    assert len(ticks) in (400, 600)
    assert {total for _, total, _ in ticks} == {ope.ROUNDS * 200}


def test_large_splits_are_fitted_in_batches(mixed, monkeypatch):
    monkeypatch.setattr(fqe_fit, "BATCH", 64)
    assert mixed.size > 64
    found = fit(mixed, always(mixed, FORWARD)).estimate()
    assert found.value == pytest.approx(chain.true_value(1), abs=0.3)


def test_torch_threads_come_back(mixed):
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        fit(mixed, always(mixed, FORWARD), updates=2)
        assert torch.get_num_threads() == 2
        with extras.one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


rewards = st.floats(-5, 5, allow_nan=False)


@given(
    st.lists(rewards, min_size=1, max_size=5),
    st.lists(rewards, max_size=3),
    st.lists(rewards, max_size=3),
    st.floats(0, 0.95),
    st.data(),
)
def test_no_return_lies_outside_the_possible_ones(steps, ends, cuts, gamma, data):
    """Any walk over rewards that were seen, ended by one that ended an episode or going on for long; a cut-off step, paid
    once, may lie on the way."""
    kinds = np.repeat([0, 1, 2], [len(steps), len(ends), len(cuts)])
    low, high = returns.possible_returns(np.array(steps + ends + cuts), kinds == 1, kinds == 2, gamma)
    path = data.draw(st.lists(st.sampled_from(steps), max_size=30))
    if cuts:
        path += [data.draw(st.sampled_from(cuts)), *data.draw(st.lists(st.sampled_from(steps), max_size=9))]
    path += [data.draw(st.sampled_from(ends))] if ends else [data.draw(st.sampled_from(steps))] * 400
    value = sum(reward * gamma**step for step, reward in enumerate(path))
    assert low - 1e-6 <= value <= high + 1e-6


def test_the_seen_range_bounds_upwards_and_without_discounting_downwards():
    rewards, terminals = np.array([-1.0, 1.0, 5.0]), np.array([False, False, True])
    none = np.zeros(3, bool)
    assert returns.possible_returns(rewards, terminals, none, 0.99) == pytest.approx((-100, 100))
    assert returns.possible_returns(rewards, terminals, none, 0.99, (-2.0, 6.0)) == pytest.approx((-100, 14))
    assert returns.possible_returns(rewards, terminals, none, 1.0, (-2.0, 6.0)) == pytest.approx((-10, 14))
    assert returns.possible_returns(np.array([0.0, 5.0]), np.array([False, True]), none[:2], 1.0) == (0, 5)
    with pytest.raises(UsageError, match="no transitions"):
        returns.possible_returns(np.zeros(0), none[:0], none[:0], 0.9)


def test_what_a_cut_off_episode_was_paid_at_its_end_is_paid_once():
    """A reward of ±1 `at: end`, one episode of which was cut off: it is no price of every step."""
    rewards, kinds = np.array([0, 1.0, 0, -1.0, 0, -1.0]), np.array([0, 1, 0, 1, 0, 2])
    assert returns.possible_returns(rewards, kinds == 1, kinds == 2, 0.99, (-1, 1)) == pytest.approx(
        (-1.99, 1)
    )
    assert returns.possible_returns(rewards, kinds == 1, kinds == 3, 0.99, (-1, 1))[0] == pytest.approx(-100)
    assert returns.possible_returns(rewards[5:], kinds[5:] == 1, kinds[5:] == 2, 0.99) == pytest.approx(
        (-100, -100)
    )


def test_a_bootstrap_mean_weighs_episodes_by_their_decisions():
    values = np.array([1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0])
    episodes = np.array([3, 3, 3, 5, 6, 7, 9])
    found = intervals.bootstrap_mean(values, episodes)
    assert found.value == pytest.approx(4 / 7)
    assert 0 <= found.low < found.value < found.high <= 1
    assert intervals.bootstrap_mean(values, episodes) == found
    assert intervals.bootstrap_mean(np.full(9, 2.0)) == (2, 2, 2, "")
    assert intervals.bootstrap_mean(values[:4]).reason == "only 4 independent episodes, 5 are needed"
    assert intervals.bootstrap_mean(np.zeros(0), np.zeros(0, int)).value is None


def test_the_interval_of_the_mean_covers_it_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = 0
    for seed in range(100):
        found = intervals.bootstrap_mean(rng.normal(3, 1, size=40), seed=seed)
        hits += found.low <= 3 <= found.high
    assert 85 <= hits <= 99


def test_the_chain_used_here_is_the_one_of_the_docs():
    held = chain.walk(300, 0.25, 0)
    assert chain.true_value(1) == pytest.approx(sum(-0.1 * GAMMA**k for k in range(5)) + 10 * GAMMA**4)
    assert chain.true_value(0) == pytest.approx(-10)
    assert held.returns[held.episode_offsets[:-1]].mean() == pytest.approx(chain.true_value(0.25), abs=0.3)
    assert set(held.actions) == set(ALLOWED)


def test_groups_are_drawn_whole():
    counts = intervals.resamples(np.array([7, 7, 2, 2, 2, 9]), 50, 0)
    assert (counts[:, 0] == counts[:, 1]).all()
    assert (counts[:, 2] == counts[:, 4]).all()
    assert (counts[:, [0, 2, 5]].sum(axis=1) == 3).all()


def test_the_interval_of_a_few_members_holds_the_truth_as_often_as_it_says():
    """Means of 40 normal values, 20 bootstrap members each: percentiles would hold 0 in 86 % of cases."""
    rng = np.random.default_rng(0)
    held = above = 0
    for seed in range(400):
        values = rng.normal(size=40)
        counts = intervals.resamples(np.arange(40), 20, seed)
        found = intervals.interval((counts @ values) / 40)
        held += found.low <= 0 <= found.high
        above += found.low > 0
    assert held >= 0.91 * 400
    assert above <= 0.05 * 400


def test_correlated_trials_widen_the_interval():
    rng = np.random.default_rng(1)
    values = np.repeat(rng.normal(size=12), 5)
    alone, grouped = (
        intervals.bootstrap_mean(values),
        intervals.bootstrap_mean(values, np.repeat(np.arange(12), 5)),
    )
    assert grouped.high - grouped.low > 1.8 * (alone.high - alone.low)


def test_few_rows_of_many_columns_are_fitted_in_fewer_columns_that_hold_all_they_say(mixed):
    """Each cell as a random direction of 200 columns: FQE finds what it finds on six."""
    directions = np.random.default_rng(4).normal(size=(chain.CELLS, 200)).astype(np.float32) / 200**0.5
    wide = replace(mixed, observations=mixed.observations @ directions)
    turn = fqe_fit._basis(wide.observations)
    assert turn.shape == (200, chain.CELLS)
    np.testing.assert_allclose(
        wide.observations @ turn.numpy() @ turn.numpy().T, wide.observations, atol=1e-5
    )
    assert fqe_fit._basis(mixed.observations) is None
    found = fit(wide, always(wide, FORWARD)).estimate()
    assert found.value == pytest.approx(chain.true_value(1), abs=0.3)


def test_each_episode_has_a_q_from_members_that_never_drew_it(mixed):
    found = fit(mixed, always(mixed, FORWARD), updates=20)
    counts = intervals.resamples(mixed.groups, 10, 0)
    assert (found.out_of_bag.counts == (counts == 0).sum(axis=0)).all()
    both = ope.joined([found, found])
    assert both.values.shape == (2, 10)
    np.testing.assert_allclose(both.out_of_bag.q(mixed), found.out_of_bag.q(mixed))


def test_an_interval_of_several_trained_members_counts_their_spread():
    values = np.random.default_rng(0).normal(size=(1, 20))
    assert intervals.interval(values) == pytest.approx(intervals.interval(values[0]))
    apart = np.random.default_rng(0).normal(size=(4, 5)) * 0.01 + np.array([[0.0], [1], [2], [3]])
    found = intervals.interval(apart)
    assert found.value == pytest.approx(1.5, abs=0.02)
    assert found.high - found.low == pytest.approx(2 * 3.182 * 1.291 / 2, rel=0.05)  # t of 3 degrees


def test_an_estimate_is_cut_to_what_is_possible_or_refused():
    span = intervals.Span(-1, 1)
    assert intervals.within(intervals.Estimate(0.5, 0.0, 1.4), span) == (0.5, 0.0, 1, "")
    assert (
        "holds all that a return can be" in intervals.within(intervals.Estimate(-0.3, -6.8, 4.2), span).reason
    )
    assert "lies outside" in intervals.within(intervals.Estimate(-1.28, -1.5, -1.1), span).reason
    assert intervals.within(intervals.Estimate(None, reason="why"), span).reason == "why"


def test_noise_adds_up_with_satterthwaites_degrees_of_freedom():
    found = intervals.pooled(intervals.Noise(2.0, 4), intervals.Noise(1.0, 1))
    assert found == pytest.approx((3.0, 9 / (4 / 4 + 1 / 1)))
    assert intervals.pooled(intervals.Noise(2.0, 4), intervals.Noise.among(np.array([1.0]))) == (2.0, 4)
    assert intervals.Noise.among(np.array([0.0, 2.0])) == (1.0, 1)
    assert intervals.Noise(4.0, 10).half == pytest.approx(2 * 2.228, abs=1e-3)
    assert intervals.pooled(intervals.Noise(0.0, 3)).half == 0


def test_drifts_of_opposite_members_do_not_cancel():
    fits = [ope.Fitted(np.zeros(3), drift, 0.1) for drift in (0.5, -0.45, 0.0)]
    assert "still moved by +0.5" in ope.joined(fits).unsettled
    assert "still moved by -0.45" in ope.joined(fits[1:]).unsettled
    assert not ope.joined(fits[2:]).unsettled
