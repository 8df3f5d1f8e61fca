"""Runs that met a limit are truncated, in every format that can say so; those that ended are terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.connectors import get
from logforge.connectors.episodes import limit_met
from logforge.connectors.episodes.cuts import cut_by
from logforge.connectors.records import Source
from logforge.schemas import Episode

LIMITS = {
    "length": "the model's output limit",
    "max_tokens": "the model's output limit",
    "MAX_TOKENS": "the model's output limit",
    "max_output_tokens": "the model's output limit",
    "max_total_completion_tokens": "the model's output limit",
    "maxTokens": "the model's output limit",
    "token_limit_reached": "the model's output limit",
    "generation_truncated": "the model's output limit",
    "model_context_window_exceeded": "context overflow",
    "context_length_exceeded": "context overflow",
    "prompt_too_long": "context overflow",
    "model_length": "context overflow",
    "max_turns": "the limit of turns",
    "max_turns_reached": "the limit of turns",
    "max_steps": "the limit of turns",
    "max_iterations_exceeded": "the limit of turns",
    "step_limit": "the limit of turns",
    "error_max_turns": "the limit of turns",
    "timeout": "the time limit",
    "timeout_reached": "the time limit",
    "time limit": "the time limit",
    "cost_limit": "the budget",
    "budget_exceeded": "the budget",
    "content_filter": "the content filter stopped it",
    "content-filter": "the content filter stopped it",
    "cancelled": "it was stopped",
    "incomplete": "it was stopped",
    "has_error": "an error stopped it",
}
ENDS = (
    "stop",
    "end_turn",
    "tool_calls",
    "tool_use",
    "stop_sequence",
    "eos",
    "STOP",
    "user_stop",
    "agent_stop",
)
ENDS += ("no_tools_called", "completed", "submitted", "max_effort", "", "function_call", "refusal", "other")


@pytest.mark.parametrize(("word", "why"), LIMITS.items())
def test_limits(word, why):
    assert limit_met(word) == why
    assert limit_met({"type": word}) == why
    assert limit_met([word]) == why


@pytest.mark.parametrize("word", ENDS)
def test_ends(word):
    assert limit_met(word) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_odd_values_say_nothing_or_a_limit(value):
    assert limit_met(value) is None or limit_met(value) in LIMITS.values()
    assert cut_by({"truncated": value}) in (None, "the log says so")


CHAT = [{"role": "user", "content": "Prove it"}, {"role": "assistant", "content": "First we no"}]
SHAREGPT = [{"from": "human", "value": "Prove it"}, {"from": "gpt", "value": "First we no"}]
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOLS = [
    {"from": "human", "value": "Go"},
    {"from": "function_call", "value": '{"name": "f", "arguments": {}}'},
    {"from": "observation", "value": "1"},
]


def said(row: dict[str, Any], reason: dict[str, Any]) -> dict[str, Any]:
    """The row with the reason on its last message."""
    key = next(key for key in ("messages", "completion", "conversation", "conversations") if key in row)
    return {**row, key: [*row[key][:-1], {**row[key][-1], **reason}]}


ROWS = {
    "openai_messages": {"messages": CHAT},
    "trl": {"prompt": CHAT[:1], "completion": CHAT[1:]},
    "rated_chat": {"conversation": CHAT, "rating": 5},
    "sharegpt_tools": {"conversations": [*TOOLS, SHAREGPT[1]], "tools": "[]"},
    "llamafactory_v1": {"messages": [{"role": "user", "content": [{"type": "text", "value": "Prove it"}]},
                                     {"role": "assistant", "content": [{"type": "text", "value": "First"}]}]},
}  # fmt: skip


def endings(name: str, path: Path, row: Any) -> list[str]:
    path.write_text(json.dumps(row) + "\n")
    found = get(name).read(Source(path, path.name))
    return [item.ending for item in found if isinstance(item, Episode)]


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("verdict", [{}, {"reward": 0.0}, {"success": False}])
def test_rows_that_say_it(name, verdict, tmp_path):
    path, row = tmp_path / "rows.jsonl", {**ROWS[name], **verdict}
    assert endings(name, path, row) == ["terminal"]
    for cut in ({"finish_reason": "length"}, {"stop_reason": "max_tokens"}, {"is_truncated": True}):
        assert endings(name, path, {**row, **cut}) == ["truncated"]
    assert endings(name, path, {**row, "stop_condition": "max_turns_reached"}) == ["truncated"]
    assert endings(name, path, {**row, "is_truncated": False, "finish_reason": "stop"}) == ["terminal"]
    assert endings(name, path, said(row, {"finish_reason": "length"})) == ["truncated"]
    assert endings(name, path, said(row, {"finish_reason": "stop"})) == ["terminal"]


def test_a_limit_met_earlier_is_none_at_the_end(tmp_path):
    first = {"role": "assistant", "content": "First we no", "finish_reason": "length"}
    row = {
        "messages": [
            CHAT[0],
            first,
            {"role": "user", "content": "Go on"},
            {"role": "assistant", "content": "Done."},
        ]
    }
    assert endings("openai_messages", tmp_path / "rows.jsonl", row) == ["terminal"]


def test_lines_of_a_session_say_it_by_their_last(tmp_path):
    path = tmp_path / "lines.jsonl"
    lines = [{"session_id": "s", **message} for message in CHAT]
    for cut, ending in (({}, "terminal"), ({"finish_reason": "length"}, "truncated")):
        path.write_text("".join(json.dumps(line) + "\n" for line in (lines[0], {**lines[1], **cut})))
        (episode,) = get("openai_messages").read(Source(path, path.name))
        assert isinstance(episode, Episode)
        assert episode.ending == ending


@pytest.mark.parametrize("word", ["length", "max_tokens", "max_output_tokens", "content_filter"])
def test_exchanges_and_streams_take_every_server_s_word(word, tmp_path):
    path = tmp_path / "log.jsonl"
    request = {"model": "m", "messages": CHAT[:1]}
    exchange = {"request": request, "response": {"choices": [{"message": CHAT[1], "finish_reason": word}]}}
    assert endings("openai_requests", path, exchange) == ["truncated"]
    blocks = [{"type": "text", "text": "First we no"}]
    assert endings(
        "anthropic_api", path, {"request": request, "response": {"content": blocks, "stop_reason": word}}
    ) == ["truncated"]
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk"}
    choice = {"index": 0, "delta": {"content": "First we no"}, "finish_reason": word}
    assert endings("openai_stream", path, {**chunk, "choices": [choice]}) == ["truncated"]


def test_an_atif_trajectory_says_it(tmp_path):
    path = tmp_path / "trajectory.json"
    steps = [
        {"step_id": 1, "source": "user", "message": "Prove it"},
        {"step_id": 2, "source": "agent", "message": "First we no"},
    ]
    row = {
        "schema_version": "ATIF-v1.5",
        "session_id": "s",
        "agent": {"name": "a", "version": "1"},
        "steps": steps,
    }
    assert endings("atif", path, row) == ["terminal"]
    assert endings("atif", path, {**row, "extra": {"stop_condition": "max_turns_reached"}}) == ["truncated"]
