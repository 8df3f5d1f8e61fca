"""Refusals in the world's own words: told from errors, from results and from talk of conditions."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.connectors.episodes.outcome import classify_result
from logforge.connectors.episodes.soft_refusal import SOFT_REFUSAL, is_soft_refusal
from logforge.envs.catalogue import WORLDS, make
from logforge.envs.simulation import simulate
from logforge.envs.tool_env import gym_env
from logforge.envs.wording import wording
from logforge.envs.world import NOTHING
from logforge.ingestion.pipeline import ingest

NAMES = list(WORLDS)
SOFT = ("refused", SOFT_REFUSAL)


def replies(name, held_out, soft):
    """The texts of a world's replies that are refusals, or of the others."""
    world, words = make(name), wording(name, held_out)
    codes = [c for c in range(len(world.replies)) if c != NOTHING and (world.status(c) == "refused") is soft]
    return [words.reply(world.replies[c], pick) for c in codes for pick in np.linspace(0, 0.999, 8)]


@pytest.mark.parametrize(
    "text",
    [
        "Please give your account information first.",
        "OBSERVATION:\nPlease give your account information first.",
        "Sorry, you need to verify the caller before this can go on. Please verify the caller first",
        "You must provide either AccountNumber and PIN, or FullName and DateOfBirth.",
        "Sorry, you are not authorized to unlock the door. Please obtain a clearance code.",
        "The parameter 'city' is required.",
        "We cannot proceed without an order number.",
        "It cannot be opened until the deposit has been paid.",
        "There is no such tool.",
        '{"id": 3, "Message": "Please log in first."}',
    ],
)
@pytest.mark.parametrize("failed", [None, False])
def test_what_asks_for_something_first_is_a_soft_refusal(text, failed):
    assert classify_result(text, failed) == SOFT


@pytest.mark.parametrize(
    "text",
    [
        "Take your medicine before you go to sleep.",
        "You were the first.",
        "Please try another time.",
        "Please bring a passport and a bank statement.",
        "Your order cannot arrive before Friday.",
        "1. Preheat the oven first. 2. Add flour.",
        "No action is required.",
        "He could not return until the war was over.",
        "The library is closed until Monday.",
        "Dear all,\nplease read the report first.\nAnna",
        "please first " + "x " * 200,
        '{"name": "read me first", "note": "Please log in first."}',
        '{"message": 3}',
        '{"message": "Please log in first."',
        "first",
    ],
)
def test_other_talk_of_conditions_is_none(text):
    assert classify_result(text) == ("ok", None)


def test_an_error_keeps_its_class():
    assert classify_result("Error: missing token. Please log in first.") == ("error", "invalid_arguments")
    assert classify_result("Please log in first.", True) == ("error", "other")
    assert classify_result("Please log in first.", None, "timeout") == ("timeout", None)


def test_a_refusal_that_the_log_tells_is_no_soft_one():
    """A person or a guard refused, whatever words stand there."""
    for text in ("Please provide the account number first.", "Please log in first.", "No."):
        assert classify_result(text, None, "refused") == ("refused", None)


@given(st.text(max_size=500) | st.text("please cannot until is first.{}\":' ", max_size=500))
def test_any_text_has_an_answer(text):
    assert is_soft_refusal(text) in (True, False)


@pytest.mark.parametrize(
    "text", ["cannot until " * 18, "cannot before " * 17 + "it", "please " * 34, "nothing " * 30, "{" * 399]
)
def test_repeated_words_take_no_time(text):
    assert not is_soft_refusal(text)


@pytest.mark.parametrize("name", NAMES)
def test_refusals_of_the_simulators_are_told_by_their_words_alone(name):
    assert all(map(is_soft_refusal, replies(name, held_out=False, soft=True)))
    for held_out in (False, True):
        assert not any(map(is_soft_refusal, replies(name, held_out, soft=False)))


def test_of_the_wordings_held_out_two_are_told_by_their_words_alone():
    held = {text for name in NAMES for text in replies(name, held_out=True, soft=True)}
    assert (sum(map(is_soft_refusal, held)), len(held)) == (2, 5)


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_any_action_is_answered_and_a_refusal_is_logged_as_one(name, held_out):
    """Also one that is none; whatever came before. Known wordings are told without the log's own word too."""
    pytest.importorskip("gymnasium")
    env, rng = gym_env(name, held_out), np.random.default_rng(0)
    told = dict(_texts(env.world, wording(name, held_out)))
    seen = Counter()
    for number in range(150):
        env.reset(seed=number)
        over = False
        while not over:
            action = rng.integers(-1, 17)
            observation, _, ended, cut, _ = env.step(action) if action < 16 else env.act("no_such_thing")
            assert env.observation_space.contains(observation)
            over = ended or cut
        for step in env.episode().steps:
            if step.kind != "tool":
                continue
            wanted = env.world.status(told[step.result])
            seen[wanted] += 1
            assert step.result_status == wanted
            assert (step.error_class == SOFT_REFUSAL) is (wanted == "refused")
            assert (step.error_class is None) is (wanted == "ok")
            if not held_out:
                assert classify_result(step.result)[0] == wanted
    assert min(seen[status] for status in ("ok", "refused", "error")) > 20


def _texts(world, words):
    for code, name in enumerate(world.replies):
        if code != NOTHING:
            yield from ((words.reply(name, pick), code) for pick in np.linspace(0, 0.999, 8))


def test_a_raw_log_without_verdicts_tells_the_same_refusals(tmp_path, store):
    simulate(make("support-escalation"), "random", 40, 0, tmp_path / "told")
    rows = [
        json.loads(line) for line in (tmp_path / "told" / "support-escalation.jsonl").read_text().splitlines()
    ]
    for row in rows:
        row["id"] += "-bare"
        for message in row["messages"]:
            message.pop("status", None)
    (tmp_path / "bare.jsonl").write_text("\n".join(map(json.dumps, rows)))
    ingest(store, [tmp_path])
    query = """SELECT native_id LIKE '%-bare' AS bare, count(*) AS calls, count(*) FILTER (error_class = 'soft_refusal') AS soft,
      count(*) FILTER (result_status = 'refused') AS refused, count(*) FILTER (result_status = 'error') AS errors
      FROM steps JOIN episodes USING (episode_id) WHERE kind = 'tool' GROUP BY ALL ORDER BY 1"""
    told, bare = store.sql(query).rows()
    assert told[1:] == bare[1:]
    assert told[2] == told[3] > 50
    assert told[4] > 20
