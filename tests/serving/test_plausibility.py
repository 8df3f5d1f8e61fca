"""Watching decisions: each check with what it catches, corrupted weights above all, and silence where nothing is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.ingestion.pipeline import ingest
from logforge.learning.policies.bundle import Decision, PolicyBundle, load_policy
from logforge.learning.policies.card import Habits, Range
from logforge.learning.policies.layers import Layer
from logforge.learning.policies.typical_behaviour import habits_of
from logforge.learning.training.pipeline import train
from logforge.serving.plausibility import AT_LEAST, CHANCE, WINDOW, Doubt, Watch, at_least
from logforge.shards.reader import Shard, load_shards
from logforge.store.store import Store
from support.made_habits import A, made
from support.places import SAMPLES


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[PolicyBundle, Path]:
    """A clone of the sample logs as training saves it, and its dataset."""
    home = tmp_path_factory.mktemp("plausibility")
    with Store(home / "s.duckdb") as store:
        ingest(store, [SAMPLES])
        config = BuildConfig(encoder="hashing", text_size=8)
        build_dataset(store, SAMPLES / "reward.yaml", out=home, config=config)
    train(home / "default", out=home / "run", algo="bc", updates=150, hidden=(32,), backend="torch")
    return load_policy(home / "run" / "bc"), home / "default"


def doubts(policy: PolicyBundle, shard: Shard, every: int = 100) -> Iterator[list[Doubt]]:
    """Those of every decision of a split, each episode watched as a session."""
    for episode in shard.episodes():
        watch = Watch(policy, every)
        for row, mask in zip(episode.observations[:-1], episode.masks[:-1], strict=True):
            found = watch.before(row)
            yield list(found or watch.see(policy.act(row, mask), mask))


def test_training_notes_the_habits_and_nothing_is_doubted_where_they_come_from(
    trained: tuple[PolicyBundle, Path],
) -> None:
    policy, folder = trained
    split = load_shards(folder, "train")
    assert policy.card.habits == habits_of(policy, split)
    assert policy.card.habits.states == split.size
    seen = [doubt for found in doubts(policy, split) for doubt in found]
    assert not [doubt for doubt in seen if doubt.check != "support"]


def test_states_that_were_held_out_are_hardly_ever_doubted(trained: tuple[PolicyBundle, Path]) -> None:
    policy, folder = trained
    found = list(doubts(policy, load_shards(folder, "test")))
    assert sum(map(bool, found)) <= 0.05 * len(found)
    assert len(found) > 30


CORRUPTIONS: dict[str, Callable[[Any], Any]] = {
    "zeroed": lambda array: array * 0,
    "ten times": lambda array: array * 10,
    "NaN": lambda array: array * np.float32("nan"),
    "infinite": lambda array: array * np.float32("inf"),
    "shuffled": lambda array: np.random.default_rng(0).permutation(array.ravel()).reshape(array.shape),
}


def corrupted(policy: PolicyBundle, how: Callable[[Any], Any]) -> PolicyBundle:
    """The policy after its numbers in memory were changed."""
    with np.errstate(all="ignore"):
        layers = tuple(Layer(how(layer.weight), how(layer.bias)) for layer in policy.layers)
    return replace(policy, layers=layers)


@pytest.mark.parametrize("how", CORRUPTIONS)
def test_corrupted_weights_are_caught_by_their_hash(trained: tuple[PolicyBundle, Path], how: str) -> None:
    policy, folder = trained
    broken = corrupted(policy, CORRUPTIONS[how])
    assert policy.is_intact
    assert not broken.is_intact
    first = next(doubts(broken, load_shards(folder, "test"), every=1))
    assert first[0].check == "weights"


@pytest.mark.parametrize("how", ["zeroed", "ten times", "NaN", "infinite"])
def test_corrupted_weights_are_caught_by_what_they_decide_alone(
    trained: tuple[PolicyBundle, Path], how: str
) -> None:
    policy, folder = trained
    unsaved = replace(policy, card=msgspec.structs.replace(policy.card, files={}))  # no hash to go by
    found = list(doubts(corrupted(unsaved, CORRUPTIONS[how]), load_shards(folder, "test")))
    assert sum(map(bool, found)) > 0.5 * len(found)


def test_one_bit_of_the_behaviour_is_enough_for_the_hash(trained: tuple[PolicyBundle, Path]) -> None:
    policy, _ = trained
    first, *rest = policy.behaviour
    weight = first.weight.copy()
    weight.view(np.uint32)[0, 0] ^= 1
    assert not replace(policy, behaviour=(Layer(weight, first.bias), *rest)).is_intact


def test_a_doubt_has_the_weights_looked_at_and_else_they_are_every_so_often() -> None:
    policy = made()
    card = msgspec.structs.replace(policy.card, files={"weights.safetensors": "another hash"})
    watch = Watch(replace(policy, card=card), every=3)
    row, mask = np.zeros(3, np.float32), np.ones(A, bool)
    found = [[doubt.check for doubt in watch.see(watch.policy.act(row, mask), mask)] for _ in range(4)]
    assert found == [[], [], ["weights"], []]
    [weights, finite] = watch.before(np.full(3, np.nan))
    assert (weights.check, finite.check) == ("weights", "finite")
    assert "the observation holds such numbers itself" in finite.found


def test_a_call_may_be_made_again_as_often_as_the_log_shows_and_no_more() -> None:
    row, mask = np.zeros(3, np.float32), np.ones(A, bool)
    policy = made()
    decision = policy.act(row, mask)
    for runs, most in (({}, AT_LEAST), ({decision.name: 2}, AT_LEAST), ({decision.name: 7}, 7)):
        habits = Habits(10, None, _around(decision), None, runs)
        watch = Watch(replace(policy, card=msgspec.structs.replace(policy.card, habits=habits)))
        assert watch.see(decision, mask) == watch.call(decision.name, most - 1) == ()
        [doubt] = watch.call(decision.name, most)
        assert doubt.check == "repeated"
        assert watch.verdict.doubts == {"repeated": 1}
        assert (watch.verdict.decisions, watch.verdict.is_plausible) == (1, False)


def _around(decision: Decision) -> Range:
    score = float(decision.scores[decision.action])
    return Range(score - 1, score + 1)


def test_a_share_without_support_counts_against_the_policy_s_own_share() -> None:
    row, mask = np.zeros(3, np.float32), np.ones(A, bool)
    policy = made()
    decision = replace(policy.act(row, mask), supported=False)
    counts = {}
    for share in (0.0, 0.3, 1.0):
        habits = Habits(1000, None, _around(decision), share, {})
        watch = Watch(replace(policy, card=msgspec.structs.replace(policy.card, habits=habits)))
        found = [bool(watch.see(decision, mask)) for _ in range(WINDOW)]
        counts[share] = found.index(True) + 1 if True in found else None
    assert counts[1.0] is None
    assert AT_LEAST == counts[0.0] < counts[0.3]
    assert 0.3 ** counts[0.3] < CHANCE * 1.1


@given(st.integers(0, WINDOW), st.integers(0, WINDOW), st.floats(0, 1))
def test_the_tail_of_a_binomial_is_a_chance_that_falls_with_the_count(
    count: int, size: int, chance: float
) -> None:
    found = at_least(count, size, chance)
    assert -1e-9 <= found <= 1 + 1e-9
    assert at_least(0, size, chance) == pytest.approx(1)
    assert at_least(count + 1, size, chance) <= found + 1e-12


def test_a_policy_without_habits_is_still_watched() -> None:
    policy, row, mask = made(), np.zeros(3, np.float32), np.ones(A, bool)
    watch = Watch(policy)
    assert watch.see(policy.act(row, mask), mask) == ()
    assert [doubt.check for doubt in watch.call("find", AT_LEAST)] == ["repeated"]
