"""What a policy does in the states of its train split: counted as by hand, and noted on every card."""

from __future__ import annotations

import itertools
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.learning.policies.bundle import PolicyBundle, load_policy
from logforge.learning.policies.card import Range
from logforge.learning.policies.typical_behaviour import entropies, habits_of, playable
from logforge.schemas.errors import UsageError
from support.made_arrays import VOCABULARY, altered, episode_kinds, make
from support.made_habits import A, made


@given(
    st.lists(st.floats(-50, 50, width=32), min_size=A, max_size=A),
    st.lists(st.booleans(), min_size=A, max_size=A).filter(any),
)
def test_the_entropy_is_a_share_of_the_most_that_the_mask_leaves(
    scores: list[float], mask: list[bool]
) -> None:
    [found] = entropies(np.array([scores]), np.array([mask]))
    open_to_it = [score for score, allowed in zip(scores, mask, strict=True) if allowed]
    if len(open_to_it) == 1:
        assert math.isnan(found)
        return
    powers = [math.exp(score - max(open_to_it)) for score in open_to_it]
    chances = [power / sum(powers) for power in powers]
    by_hand = -sum(chance * math.log(chance) for chance in chances if chance > 0) / math.log(len(chances))
    assert found == pytest.approx(by_hand, abs=1e-9)
    assert -1e-9 <= found <= 1 + 1e-9


def test_scores_that_are_all_alike_are_at_the_most_and_one_that_stands_out_at_none() -> None:
    alike, apart = entropies(np.array([[1.0] * A, [99.0, *[0.0] * (A - 1)]]), np.ones((2, A), bool))
    assert alike == pytest.approx(1)
    assert apart == pytest.approx(0, abs=1e-9)


@given(episode_kinds, st.integers(0, 9))
def test_habits_are_counted_as_by_hand(kinds: list[tuple[int, bool]], seed: int) -> None:
    split, policy = make(kinds, seed), made(seed)
    habits = habits_of(policy, split)
    rows = np.concatenate([episode.observations[:-1] for episode in split.episodes()])
    masks = np.concatenate([episode.masks[:-1] for episode in split.episodes()])
    decisions = policy.decisions(rows, masks)
    assert habits.states == split.size
    scores = [float(one.scores[one.action]) for one in decisions]
    assert (habits.score.low, habits.score.high) == pytest.approx((min(scores), max(scores)))
    assert habits.unsupported == pytest.approx(np.mean([not one.supported for one in decisions]))
    runs: dict[str, int] = {}
    for episode in split.episodes():
        for action, run in itertools.groupby(episode.actions.tolist()):
            name = VOCABULARY.actions[action]
            runs[name] = max(runs.get(name, 0), len(list(run)))
    assert habits.runs == {name: length for name, length in runs.items() if length > 1}


def test_no_clone_no_share_and_states_without_an_action_are_left_out() -> None:
    split = altered(make([(3, True)]), "masks", 1, False)
    habits = habits_of(made(behaviour=False), split)
    assert (habits.unsupported, habits.states) == (None, 2)
    with pytest.raises(UsageError, match="no state"):
        habits_of(made(), altered(split, "masks", slice(None), False))


def test_what_no_policy_takes_is_not_playable() -> None:
    assert not playable(np.ones((1, A)), VOCABULARY.actions)[0, VOCABULARY.invalid]


def test_ranges_grow_by_a_share_and_towards_limits() -> None:
    assert Range(2.0, 4.0).wider(0.5) == Range(1.0, 5.0)
    assert Range(0.2, 0.8).towards(0.0, 1.0) == Range(0.1, 0.9)


def test_a_card_keeps_its_habits_and_one_without_them_still_loads(tmp_path) -> None:
    policy = made()
    assert load_policy(policy.save(tmp_path / "old")).card.habits is None
    habits = habits_of(policy, make([(4, True), (2, False)]))
    card = msgspec.structs.replace(policy.card, habits=habits)
    saved = PolicyBundle(card, policy.layers, policy.behaviour).save(tmp_path / "new")
    assert load_policy(saved).card.habits == habits
