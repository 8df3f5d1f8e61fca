"""Decisions drawn by chance, with the propensity that a log of them is judged by."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.ingestion.pipeline import ingest
from logforge.schemas.errors import UsageError
from support.made_arrays import DIM, VOCABULARY
from support.made_policy import A, made

ROW, ALL = np.ones(DIM), np.ones(A, np.bool_)


def test_the_best_action_is_taken_for_sure():
    assert made("logits").act(ROW, ALL).propensity == 1


@given(
    st.integers(0, 50), st.floats(0, 1), st.sampled_from([None, 0.5, 3.0]), st.sampled_from(["q", "logits"])
)
def test_a_draw_has_the_chance_it_says_and_only_of_what_is_allowed(seed, explore, temperature, kind):
    policy, mask = made(kind), ALL.copy()
    mask[VOCABULARY.id("refund")] = False
    found = policy.draw(ROW, mask, np.random.default_rng(seed), temperature=temperature, explore=explore)
    offered = [a for a in range(A) if mask[a] and a != VOCABULARY.invalid]
    own = policy.probabilities(ROW[None], mask[None], temperature)[0]
    assert found.action in offered
    expected = (1 - explore) * own[found.action] + explore / len(offered)
    assert found.propensity == pytest.approx(expected, rel=1e-5)
    assert found.probabilities.sum() == pytest.approx(1)
    assert found.probabilities[found.action] == found.propensity


def test_draws_come_as_often_as_they_say():
    policy, rng = made("logits"), np.random.default_rng(0)
    drawn = [policy.draw(ROW, ALL, rng, explore=0.2) for _ in range(3000)]
    seen = np.bincount([one.action for one in drawn], minlength=A) / len(drawn)
    assert seen == pytest.approx(drawn[0].probabilities, abs=0.04)
    again = policy.draw(ROW, ALL, np.random.default_rng(5))
    assert again.action == policy.draw(ROW, ALL, np.random.default_rng(5)).action


@pytest.mark.parametrize("explore", [-0.1, 1.1, float("nan")])
def test_a_chance_is_from_0_to_1(explore):
    with pytest.raises(UsageError, match="from 0 to 1"):
        made().draw(ROW, ALL, np.random.default_rng(0), explore=explore)


def test_a_log_of_draws_is_read_with_its_propensities(store, tmp_path):
    policy, rng, messages, chances = made("logits"), np.random.default_rng(1), [], []
    for number in range(6):
        found = policy.draw(ROW, ALL, rng, explore=0.3)
        chances.append(found.propensity)
        call = {"id": f"c{number}", "type": "function", "function": {"name": "search", "arguments": "{}"}}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call], "propensity": found.propensity},
            {"role": "tool", "tool_call_id": f"c{number}", "content": "found"},
        ]
    row = {
        "id": "a",
        "policy_id": policy.policy_id,
        "messages": [{"role": "user", "content": "hello"}, *messages],
    }
    (tmp_path / "log.jsonl").write_text(json.dumps(row))
    ingest(store, [tmp_path / "log.jsonl"])
    query = "SELECT propensity, propensity_kind, policy_id FROM steps JOIN episodes USING (episode_id) ORDER BY step"
    read = store.con.sql(query.replace("policy_id", "episodes.policy_id")).fetchall()
    assert [one for one, _, _ in read] == pytest.approx(chances)
    assert {(kind, name) for _, kind, name in read} == {("logged", policy.policy_id)}
