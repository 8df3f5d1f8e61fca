"""Bootstrapped targets against their definitions, written out per episode in plain Python."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.evaluation.credit.targets import gae, n_step, retrace, td_lambda
from logforge.rewards.returns import returns_to_go, time_discounts
from logforge.schemas.errors import UsageError

number = st.floats(-10, 10, allow_nan=False)


@st.composite
def logged(draw):
    """(rewards, values, offsets, terminal, gamma, per-step gammas or the same)."""
    lengths = draw(st.lists(st.integers(0, 6), min_size=1, max_size=5))
    total = sum(lengths)
    rewards = np.array(draw(st.lists(number, min_size=total, max_size=total)))
    values = np.array(draw(st.lists(number, min_size=total + len(lengths), max_size=total + len(lengths))))
    terminal = np.array(draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths))))
    offsets = np.cumsum([0, *lengths])
    one = draw(st.sampled_from([1.0, 0.9, 0.5]))
    many = np.array(draw(st.lists(st.sampled_from([1.0, 0.9, 0.3]), min_size=total, max_size=total)))
    return rewards.reshape(-1), values, offsets, terminal, draw(st.sampled_from([one, many]))


def episodes(rewards, values, offsets, terminal, gamma):
    """Rewards, values (the last one 0 at a true end) and discounts of each episode."""
    gammas = np.broadcast_to(gamma, (len(rewards),))
    for i, (a, b) in enumerate(pairwise(offsets)):
        v = list(values[a + i : b + i + 1])
        yield list(rewards[a:b]), [*v[:-1], 0.0 if terminal[i] else v[-1]], list(gammas[a:b]), a


def n_step_by_hand(r, v, g, t, n):
    total, weight = 0.0, 1.0
    for k in range(t, min(t + n, len(r))):
        total += weight * r[k]
        weight *= g[k]
    return total + weight * v[min(t + n, len(r))]


@settings(max_examples=60, deadline=None)
@given(logged(), st.integers(1, 8))
def test_n_step(case, n):
    found = n_step(*case, n)
    for r, v, g, a in episodes(*case):
        for t in range(len(r)):
            assert found[a + t] == pytest.approx(n_step_by_hand(r, v, g, t, n), abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(logged(), st.sampled_from([0.0, 0.3, 0.95, 1.0]))
def test_the_lambda_return_is_the_weighted_mean_of_n_step_returns(case, lam):
    """G^λ = (1 − λ) Σ_{n<T−t} λ^{n−1} G^{(n)} + λ^{T−t−1} G^{(T−t)} (Sutton and Barto 2018, eq. 12.3)."""
    found = td_lambda(*case, lam)
    for r, v, g, a in episodes(*case):
        for t in range(len(r)):
            left = len(r) - t
            mean = sum((1 - lam) * lam ** (n - 1) * n_step_by_hand(r, v, g, t, n) for n in range(1, left))
            mean += lam ** (left - 1) * n_step_by_hand(r, v, g, t, left)
            assert found[a + t] == pytest.approx(mean, abs=1e-8)


@settings(max_examples=60, deadline=None)
@given(logged(), st.sampled_from([0.0, 0.3, 0.95, 1.0]))
def test_gae_is_the_lambda_return_less_the_value(case, lam):
    advantages, returns = gae(*case, lam), td_lambda(*case, lam)
    for r, v, g, a in episodes(*case):
        for t in range(len(r)):
            errors = [r[k] + g[k] * v[k + 1] - v[k] for k in range(len(r))]
            by_hand = sum(np.prod([g[j] * lam for j in range(t, k)]) * errors[k] for k in range(t, len(r)))
            assert advantages[a + t] == pytest.approx(by_hand, abs=1e-8)
            assert advantages[a + t] == pytest.approx(returns[a + t] - v[t], abs=1e-8)


@settings(max_examples=60, deadline=None)
@given(logged(), st.sampled_from([0.0, 0.5, 1.0]), st.randoms())
def test_retrace(case, lam, random):
    rewards, values, offsets, terminal, gamma = case
    taken = np.array([random.uniform(-5, 5) for _ in rewards])
    ratios = np.array([random.choice([0.0, 0.4, 1.0, 7.0, float("nan")]) for _ in rewards])
    found = retrace(rewards, taken, values, ratios, offsets, terminal, gamma, lam)
    c = lam * np.minimum(1, np.nan_to_num(ratios, nan=0))
    for r, v, g, a in episodes(*case):
        q = taken[a : a + len(r)]
        for t in range(len(r)):
            target = q[t]
            for k in range(t, len(r)):
                trace = np.prod([g[j] for j in range(t, k)]) * np.prod(
                    [c[a + j] for j in range(t + 1, k + 1)]
                )
                target += trace * (r[k] + g[k] * v[k + 1] - q[k])
            assert found[a + t] == pytest.approx(target, abs=1e-8)


def test_on_policy_retrace_is_the_lambda_return():
    rewards, values = np.array([1.0, 2.0, 3.0]), np.array([0.5, 1.5, 2.5, 4.0])
    offsets, terminal = np.array([0, 3]), np.array([False])
    targets = retrace(rewards, values[:3], values, np.ones(3), offsets, terminal, 0.9, 0.8)
    assert targets == pytest.approx(td_lambda(rewards, values, offsets, terminal, 0.9, 0.8))


def test_a_five_step_chain_by_hand():
    """Rewards 0 0 0 0 1, γ 0.5, V = 0.1 … 0.5 and 0.6 behind the end."""
    rewards, values = np.array([0.0, 0, 0, 0, 1]), np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    chain = (rewards, values, np.array([0, 5]))
    done, cut = np.array([True]), np.array([False])
    assert td_lambda(*chain, done, 0.5, 0.0) == pytest.approx([0.1, 0.15, 0.2, 0.25, 1.0])
    assert td_lambda(*chain, done, 0.5, 1.0) == pytest.approx([0.0625, 0.125, 0.25, 0.5, 1.0])
    assert td_lambda(*chain, cut, 0.5, 1.0) == pytest.approx([0.08125, 0.1625, 0.325, 0.65, 1.3])
    assert gae(*chain, done, 0.5, 0.0) == pytest.approx([0.0, -0.05, -0.1, -0.15, 0.5])
    assert n_step(*chain, done, 0.5, 2) == pytest.approx([0.075, 0.1, 0.125, 0.5, 1.0])


@settings(max_examples=30, deadline=None)
@given(logged())
def test_lambda_one_at_true_ends_is_the_return_to_go(case):
    rewards, values, offsets, terminal, gamma = case
    every = np.ones_like(terminal)
    assert td_lambda(rewards, values, offsets, every, gamma, 1.0) == pytest.approx(
        returns_to_go(rewards, offsets, gamma), abs=1e-8
    )
    assert n_step(rewards, values, offsets, every, gamma, 100) == pytest.approx(
        returns_to_go(rewards, offsets, gamma), abs=1e-8
    )


def test_discounts_by_the_clock():
    seconds = np.array([60.0, 0.0, 30.0, np.nan])
    assert time_discounts(0.9, seconds, 60.0) == pytest.approx([0.9, 1.0, 0.9**0.5, 0.9])
    rewards = np.array([1.0, 1.0, 1.0, 1.0])
    found = returns_to_go(rewards, np.array([0, 4]), time_discounts(0.9, seconds, 60.0))
    assert found[0] == pytest.approx(1 + 0.9 * (1 + 1 * (1 + 0.9**0.5)))


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda r, v, o, t: td_lambda(r, v, o, t, 0.9, 1.5), "lambda is 1.5"),
        (lambda r, v, o, t: gae(r, v, o, t, 0.0, 0.5), "gamma is 0"),
        (lambda r, v, o, t: n_step(r, v, o, t, 0.9, 0), "n is 0"),
        (lambda r, v, o, t: td_lambda(r, v[:-1], o, t, 0.9, 1.0), "n \\+ 1 values"),
        (lambda r, v, o, t: td_lambda(r, v, o + 1, t, 0.9, 1.0), "offsets do not cut"),
        (lambda r, v, o, t: retrace(r, r, v, -r, o, t, 0.9, 1.0), "negative"),
        (lambda r, v, o, t: time_discounts(0.9, -r, 1.0), "negative"),
    ],
)
def test_what_does_not_fit_is_refused(call, what):
    with pytest.raises(UsageError, match=what):
        call(np.ones(2), np.ones(3), np.array([0, 2]), np.array([True]))
