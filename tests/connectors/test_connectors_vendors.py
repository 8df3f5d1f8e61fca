"""The vendors' own logs (Codex, Gemini CLI, Anthropic, ADK, LangSmith, OpenAI streams): mapping, endings, counts, quirks."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from logforge.connectors.detection import detect, get
from logforge.connectors.episodes.continuations import Continuations
from logforge.connectors.episodes.identity import episode_id
from logforge.connectors.records.base import Source
from logforge.ingestion import ingest
from logforge.schemas.episode import Duplicate, Episode, Reject, Skip
from support.places import DATA
from support.real_counts import EXPECTED, LOGS, counts_in, independent, totals_as_told

FIXTURES = DATA / "connectors"
FORMATS = (
    "adk_evalset",
    "adk_session",
    "anthropic_managed",
    "codex_rollout",
    "gemini_cli",
    "langsmith_runs",
)


def read(path: Path, name: str | None = None, label: str = "log") -> list[Any]:
    connector = get(name) if name else detect(path)[0].connector
    return list(connector.read(Source(path, label)))


def episodes(readings: list[Any]) -> list[Episode]:
    return [item for item in readings if isinstance(item, Episode)]


def rejects(readings: list[Any], level: str = "record") -> list[Reject]:
    return [item for item in readings if isinstance(item, Reject) and item.level == level]


def skips(readings: list[Any]) -> Counter[str]:
    found: Counter[str] = Counter()
    for item in readings:
        if isinstance(item, Skip):
            found[item.reason] += item.records
    return found


def counted(readings: list[Any]) -> int:
    return sum(item.records for item in readings if not isinstance(item, Reject) or item.level == "record")


def write(path: Path, rows: list[Any]) -> Path:
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("".join(line + "\n" for line in lines), "utf-8")
    return path


def roles(episode: Episode) -> str:
    return " ".join(message.role[0] for message in episode.messages)


def calls(episode: Episode) -> list[tuple[str, str, str | None]]:
    return [(s.action, s.arguments, s.result) for s in episode.steps if s.kind == "tool"]


def end(episode: Episode) -> tuple[str, str]:
    return episode.ending, episode.ending_reason


def usage(episode: Episode) -> list[tuple[int | None, int | None]]:
    return [(m.tokens_in, m.tokens_out) for m in episode.messages if m.role == "assistant"]


# --- codex_rollout --------------------------------------------------------------------------------------------------

SESSION, CHILD, OTHER = (f"019a0000-0000-7000-8000-00000000000{x}" for x in "abc")


def codex(*items: dict[str, Any], meta: bool = True) -> list[dict[str, Any]]:
    """Rollout lines, a second apart: response items, or events when their type is one."""
    events = {"task_started", "task_complete", "turn_aborted", "token_count", "error", "user_message"}
    header = [{"type": "session_meta", "payload": {"id": SESSION}}] if meta else []
    lines = header + [
        item
        if "payload" in item
        else {"type": "event_msg" if item.get("type") in events else "response_item", "payload": item}
        for item in items
    ]
    return [{"timestamp": f"2026-01-02T10:00:{i:02d}Z", **line} for i, line in enumerate(lines)]


def say(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def call(call_id: str, name: str = "shell", arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "name": name, "arguments": arguments, "call_id": call_id}


def output(call_id: str, text: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def tokens(total: tuple[int, int], last: tuple[int, int] | None = None) -> dict[str, Any]:
    info = {"total_token_usage": dict(zip(("input_tokens", "output_tokens"), total, strict=True))}
    if last:
        info["last_token_usage"] = dict(zip(("input_tokens", "output_tokens"), last, strict=True))
    return {"type": "token_count", "info": info}


def codex_episode(tmp_path: Path, *items: dict[str, Any]) -> Episode:
    (episode,) = episodes(read(write(tmp_path / "rollout.jsonl", codex(*items)), "codex_rollout"))
    return episode


def test_codex_takes_the_conversation_from_items_alone():
    readings = read(FIXTURES / "codex_rollout" / "full.jsonl")
    (episode,) = episodes(readings)
    assert roles(episode) == "s d u u a t a t t a t a a"
    assert skips(readings) == {"event_repeats_item": 3, "encrypted_reasoning": 1, "compacted_line": 1}
    assert (episode.native_id, episode.session_id) == (SESSION, SESSION)
    assert episode.episode_id == episode_id("codex_rollout", SESSION)
    assert (episode.task, episode.model) == ("Why does the build fail?", "gpt-x")
    assert episode.policy_id == f"gpt-x#prompt:{episode.prompt_version[:8]}"
    assert end(episode) == ("terminal", "the agent completed its task")
    assert episode.prompt_version is not None
    assert json.loads(episode.metadata)["compactions"] == 1


def test_codex_calls_of_every_kind():
    (episode,) = episodes(read(FIXTURES / "codex_rollout" / "full.jsonl"))
    make, refused_text, patch, shell, search, said = episode.steps
    assert episode.messages[make.position].thought == "Look at the log."
    assert episode.messages[make.position].content == "I will run it."
    assert (make.action, make.result_status, make.error_class, make.latency_s) == (
        "shell",
        "error",
        "not_found",
        1.5,
    )
    assert (refused_text.arguments, refused_text.arguments_status) == (
        "[REDACTED_ARGUMENTS len=20]",
        "invalid",
    )
    assert (refused_text.result_status, refused_text.parallel_group, patch.parallel_group) == ("error", 0, 0)
    assert json.loads(patch.arguments) == {"input": "*** Begin Patch\n*** End Patch"}
    assert (patch.result_status, patch.latency_s) == ("ok", 0.2)
    assert (shell.action, shell.result_status) == ("local_shell", "refused")
    assert (search.action, search.result_status, search.tool_call_id) == ("web_search", "missing", None)
    assert (said.kind, said.position) == ("clarify", 12)  # decided after the search, so a step of its own


def test_codex_usage_is_the_difference_between_totals():
    (episode,) = episodes(read(FIXTURES / "codex_rollout" / "full.jsonl"))
    assert usage(episode) == [(100, 10), (150, 15), (200, 5), (None, None), (350, 40)]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([tokens((100, 10))], [(100, 10)]),
        ([tokens((900, 90), (100, 10))], [(100, 10)]),
        ([{"type": "token_count", "info": None}, tokens((100, 10)), tokens((100, 10))], [(100, 10)]),
        ([], [(None, None)]),
    ],
)
def test_codex_first_totals(tmp_path, events, expected):
    assert usage(codex_episode(tmp_path, say("user", "Hi"), say("assistant", "Hello"), *events)) == expected


def test_codex_usage_that_cannot_be_shared_out_is_the_last_response_alone(tmp_path):
    items = [say("user", "Hi"), call("a"), output("a", "x"), call("b"), output("b", "x")]
    assert usage(codex_episode(tmp_path, *items, tokens((300, 30)))) == [(None, None)] * 2
    assert usage(codex_episode(tmp_path, *items, tokens((300, 30), (200, 20)))) == [(None, None), (200, 20)]
    anew = [*items[:2], tokens((300, 30)), *items[2:4], tokens((50, 5), (50, 5))]
    assert usage(codex_episode(tmp_path, *anew)) == [(300, 30), (50, 5)]


def test_codex_sub_agents_forks_and_aborts():
    readings = read(FIXTURES / "codex_rollout" / "aborted_and_copied.jsonl")
    child, other = episodes(readings)
    parent = episode_id("codex_rollout", SESSION)
    assert (child.native_id, child.parent_episode_id, child.continues_episode_id) == (CHILD, parent, parent)
    assert end(child) == ("truncated", "turn aborted: interrupted")
    assert (other.native_id, other.task, other.parent_episode_id) == (OTHER, "Count to a million.", None)
    assert end(other) == ("truncated", "the log is cut off")
    (orphan,) = rejects(readings, "part")
    assert (orphan.rule, orphan.episode_id) == ("orphan_result", child.episode_id)
    assert Counter(r.rule for r in rejects(readings)) == {
        "bad_content": 1,
        "nameless_call": 1,
        "not_a_rollout_line": 2,
        "malformed_record": 1,
    }
    assert counted(readings) == 23


def test_codex_a_call_that_lost_its_arguments_is_invalid(tmp_path):
    bare = {key: value for key, value in call("a").items() if key != "arguments"}
    custom = {"type": "custom_tool_call", "name": "patch", "call_id": "b"}
    search = {"type": "web_search_call"}
    episode = codex_episode(tmp_path, bare, custom, search, call("c", arguments=""))
    assert [(s.arguments, s.arguments_status) for s in episode.steps] == [
        ("", "invalid"),
        ("", "invalid"),
        ("{}", "ok"),
        ("{}", "ok"),
    ]


GO, DONE = {"type": "task_started"}, {"type": "task_complete", "last_agent_message": None}


@pytest.mark.parametrize(
    ("items", "ending", "reason"),
    [
        ([say("assistant", "Hi")], "terminal", "the agent gave its reply"),
        ([GO, say("assistant", "Hi")], "truncated", "the log ends while the agent is at work"),
        ([GO, say("assistant", "Hi"), DONE], "terminal", "the agent completed its task"),
        ([GO, DONE, say("user", "And?")], "truncated", "the log stops before the agent's reply"),
        ([call("a")], "truncated", "last call is unanswered"),
        ([say("user", "<turn_aborted>\nstop")], "truncated", "turn aborted"),
        ([{"type": "turn_aborted", "reason": "replaced"}], "truncated", "turn aborted: replaced"),
        ([{"type": "error", "message": "exceeds the context window"}, DONE], "truncated", "context overflow"),
        ([{"type": "error", "message": "usage limit"}], "truncated", "error: usage limit"),
        (
            [{"type": "error", "message": "usage limit"}, say("assistant", "Hi")],
            "terminal",
            "the agent gave its reply",
        ),
    ],
)
def test_codex_endings(tmp_path, items, ending, reason):
    assert end(codex_episode(tmp_path, say("user", "Go"), *items)) == (ending, reason)


@pytest.mark.parametrize(
    ("text", "status", "latency"),
    [
        ("Exit code: 0\nWall time: 2 seconds\nOutput:\nExit code: 1", "ok", 2.0),
        ("Chunk ID: 1\nWall time: 0.5 seconds\nProcess exited with code 1\nOutput:\nx", "error", 0.5),
        ('{"output":"x","metadata":{"exit_code":1,"duration_seconds":0.1}}', "error", 0.1),
        ("patch rejected by user", "refused", 1.0),
        ({"content": "fine: no error", "success": True}, "ok", 1.0),
        ([{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "u"}], "ok", 1.0),
        ("Exit code: many", "ok", 1.0),
        ("", "empty", 1.0),
    ],
)
def test_codex_outputs(tmp_path, text, status, latency):
    (step,) = codex_episode(tmp_path, say("user", "Go"), call("a"), output("a", text)).steps
    assert (step.result_status, step.latency_s) == (status, latency)


def test_codex_old_lines_and_sessions_without_a_uuid(tmp_path):
    lines = codex({"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}, meta=False)
    headed = [{"type": "session_meta", "payload": {"id": "abc"}}, *lines]
    (bare,) = episodes(read(write(tmp_path / "a.jsonl", lines)))
    (first,) = episodes(read(write(tmp_path / "b.jsonl", headed)))
    (second,) = episodes(read(write(tmp_path / "c.jsonl", [headed[0] | {"timestamp": "x"}, *lines])))
    assert (bare.native_id, bare.messages[0].content) == (None, "Hi")
    assert first.native_id == second.native_id == "abc"
    assert first.episode_id != second.episode_id  # the id alone is no identity: the whole header is


def test_codex_sessions_one_after_the_other_are_two(tmp_path):
    first = codex(say("user", "Hi"), tokens((9, 1)), say("assistant", "Hello"), tokens((9, 1)))
    second = codex({"type": "session_meta", "payload": {"id": OTHER}}, say("user", "Hi again"), meta=False)
    one, two = episodes(read(write(tmp_path / "both.jsonl", first[:2] + second)))
    assert (one.native_id, two.native_id) == (SESSION, OTHER)
    assert (one.task, two.task) == ("Hi", "Hi again")


def test_a_resumed_codex_session_replaces_its_shorter_self(tmp_path):
    whole = codex(say("user", "Hi"), say("assistant", "Hello"), say("user", "More"))
    (short,) = episodes(read(write(tmp_path / "short.jsonl", whole[:3])))
    (long,) = episodes(read(write(tmp_path / "long.jsonl", whole)))
    assert short.episode_id == long.episode_id


# --- gemini_cli -----------------------------------------------------------------------------------------------------


def test_gemini_lines_that_are_written_again_replace_each_other():
    readings = read(FIXTURES / "gemini_cli" / "appended.jsonl")
    (episode,) = episodes(readings)
    assert roles(episode) == "u a t t a u"
    assert calls(episode) == [
        ("list", '{"dir":"."}', "a.txt"),
        ("read", '{"path":"b"}', None),
        ("read", '{"path":"a"}', "not found"),
    ]
    assert [s.result_status for s in episode.steps[:3]] == ["ok", "refused", "error"]
    assert usage(episode) == [(20, 7), (None, None)]
    assert (episode.messages[1].thought, episode.model) == ("Plan\nuse ls", "gemini-x")
    assert Duplicate(records=1) in readings
    assert skips(readings) == {"rewound": 2}
    assert end(episode) == ("truncated", "info: Request cancelled.")
    assert json.loads(episode.metadata)["notices"] == [{"type": "info", "content": "Request cancelled."}]
    assert counted(readings) == 14
    assert episode.episode_id == episode_id("gemini_cli", episode.native_id)


def gemini(tmp_path: Path, *messages: dict[str, Any], **header: Any) -> Episode:
    document = {"sessionId": "s", "projectHash": "p", "startTime": "t", "messages": list(messages), **header}
    path = tmp_path / "session.json"
    path.write_text(json.dumps(document, indent=1), "utf-8")
    (episode,) = episodes(read(path))
    return episode


@pytest.mark.parametrize(
    ("message", "ending", "reason"),
    [
        ({"type": "gemini", "content": "Hi"}, "terminal", "the agent gave its reply"),
        ({"type": "error", "content": "quota"}, "truncated", "error: quota"),
        (
            {"type": "info", "content": "Update available"},
            "truncated",
            "the log stops before the agent's reply",
        ),
        (
            {"type": "gemini", "content": "", "toolCalls": [{"name": "ls", "status": "executing"}]},
            "truncated",
            "a call is still running",
        ),
        (
            {"type": "gemini", "content": "", "thoughts": [{"subject": "Hm"}]},
            "truncated",
            "the log stops before the agent's reply",
        ),
    ],
)
def test_gemini_endings(tmp_path, message, ending, reason):
    assert end(gemini(tmp_path, {"type": "user", "content": "Go"}, message)) == (ending, reason)


def test_gemini_a_call_without_a_result_has_its_own_state(tmp_path):
    states = ("error", "cancelled", "success", "executing")
    listed = [{"name": "ls", "status": state} for state in states]
    message = {"type": "gemini", "content": "", "toolCalls": [*listed, {"name": "ls"}]}
    episode = gemini(tmp_path, {"type": "user", "content": "Go"}, message)
    assert [s.result_status for s in episode.steps] == ["error", "refused", "ok", "missing", "missing"]
    assert {s.result for s in episode.steps} == {None}


def test_gemini_sub_agents_name_their_parent(tmp_path):
    folder = tmp_path / SESSION
    folder.mkdir()
    child = gemini(folder, {"type": "gemini", "content": "Hi"}, kind="subagent", sessionId=CHILD)
    assert child.parent_episode_id == episode_id("gemini_cli", SESSION)


def test_gemini_context_that_is_set_is_the_log_only_when_there_is_no_other(tmp_path):
    context = {"$set": {"messages": [{"id": "u", "type": "user", "content": "Hi"}]}}
    header = {"sessionId": "s", "projectHash": "p"}
    path = write(tmp_path / "a.jsonl", [header, context, context])
    (episode,) = episodes(read(path))
    assert (roles(episode), episode.messages[0].locator) == ("u", "log:2#/$set/messages/0/content")


# --- adk ------------------------------------------------------------------------------------------------------------


def test_adk_results_without_an_id_go_to_the_open_call_of_their_name():
    readings = read(FIXTURES / "adk_session" / "camel.json")
    (episode,) = episodes(readings)
    assert [(s.action, s.result, s.result_status, s.parallel_group) for s in episode.steps] == [
        ("price", "90", "ok", 0),
        ("stock", '{"count":4}', "ok", 0),
        ("price", "unknown item", "error", 0),
        ("respond", None, None, None),
    ]
    assert [r.rule for r in rejects(readings, "part")] == ["orphan_result"]
    assert (episode.messages[1].thought, usage(episode)[0]) == ("both at once", (30, 10))
    assert (episode.user_id, episode.model, episode.policy_id) == ("u9", "gemini-y", "gemini-y")
    assert episode.messages[0].content == "Two prices, please\n[inline_data]"
    assert end(episode) == ("truncated", "the model stopped: MAX_TOKENS")
    assert json.loads(episode.metadata)["partial_events"] == 1  # the complete event repeats it


@pytest.mark.parametrize(
    ("event", "ending", "reason"),
    [
        ({}, "terminal", "the agent gave its reply"),
        ({"interrupted": True}, "truncated", "interrupted"),
        ({"partial": True}, "truncated", "the stream stops before its end"),
        ({"errorCode": "SAFETY"}, "truncated", "the model stopped: SAFETY"),
        ({"finishReason": "STOP"}, "terminal", "the agent gave its reply"),
        ({"longRunningToolIds": ["x"]}, "truncated", "a call is still running"),
        ({"author": "user"}, "truncated", "the log stops before the agent's reply"),
    ],
)
def test_adk_endings(tmp_path, event, ending, reason):
    said = {"content": {"parts": [{"text": "Hi"}]}, "invocationId": "i"}
    events = [{**said, "author": "user"}, {**said, "author": "agent", **event}]
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"id": SESSION, "events": events}), "utf-8")
    (episode,) = episodes(read(path))
    assert end(episode) == (ending, reason)
    assert episode.episode_id == episode_id("adk_session", SESSION)


def test_adk_agents_that_hand_over_share_one_conversation():
    (episode,) = episodes(read(FIXTURES / "adk_session" / "flow_complex_spark.session.json"))
    assert len(json.loads(episode.metadata)["agents"]) == 5
    assert end(episode) == ("terminal", "the last result is the reply (skip_summarization)")
    assert episode.policy_id is None


def test_adk_cases_are_episodes_of_one_record():
    readings = read(FIXTURES / "adk_evalset" / "two_cases.json")
    one, two = episodes(readings)
    assert (one.records, two.records, counted(readings)) == (1, 0, 1)
    assert calls(one) == [("roll", '{"sides":6}', '{"result":4}'), ("roll", '{"sides":8}', '{"result":6}')]
    assert [s.parallel_group for s in one.steps] == [None] * 3  # the lists do not tell what was parallel
    assert (one.task_id, one.reference, end(one)[0]) == ("one", '{"sum":10}', "terminal")
    assert calls(two) == [("greet", "{}", '{"result":"hi"}')]
    assert end(two) == ("truncated", "no final response")
    assert [r.rule for r in rejects(readings, "part")] == [
        "orphan_result",
        "empty_conversation",
        "not_a_conversation",
    ]


@pytest.mark.parametrize(
    ("cases", "kind"), [([], Reject), ([{"eval_id": "x"}], Reject), ([{"conversation": []}], Skip)]
)
def test_an_adk_set_without_a_conversation_is_one_record_too(tmp_path, cases, kind):
    path = write(tmp_path / "x.json", [{"eval_set_id": "s", "eval_cases": cases}])
    (reading,) = read(path)
    assert isinstance(reading, kind)
    assert counted([reading]) == 1


# --- anthropic_managed ----------------------------------------------------------------------------------------------


def test_managed_events_come_from_the_stream():
    (episode,) = episodes(read(FIXTURES / "anthropic_managed" / "anthropic_managed_custom_tools.jsonl"))
    assert roles(episode) == "s u a t a"
    assert calls(episode) == [("get_weather", '{"location":"Prague"}', "It's 23°C and sunny in Prague.")]
    assert usage(episode) == [(7203, 50), (7273, 30)]
    assert (episode.model, episode.tools) == ("claude-sonnet-5", None)  # a toolset hides what it offers
    assert end(episode) == ("terminal", "the agent ended its turn")


def test_managed_refusals_and_interruptions():
    readings = read(FIXTURES / "anthropic_managed" / "interrupted.jsonl")
    (episode,) = episodes(readings)
    lookup, remove = episode.steps
    assert (lookup.result, lookup.result_status) == ("A is 1", "ok")
    assert (remove.result_status, remove.parallel_group) == ("refused", lookup.parallel_group)
    turn = episode.messages[lookup.position]
    assert (turn.content, turn.thought, turn.tokens_in, turn.tokens_out) == ("On it.", "both", 10, 12)
    assert episode.tools == ["lookup", "rm"]
    assert end(episode) == ("truncated", "interrupted by the user")
    assert skips(readings) == {"sent_event": 1, "repeated_event": 1, "other_call": 1}
    assert counted(readings) == 22


STREAM = "client.beta.sessions.events.stream"
TEXT = [{"type": "text", "text": "Hi"}]


@pytest.mark.parametrize(
    ("events", "ending", "reason", "success"),
    [
        ([], "terminal", "the agent gave its reply", None),
        ([{"type": "session.status_running"}], "truncated", "still running", None),
        (
            [{"type": "session.status_idle", "stop_reason": {"type": "retries_exhausted"}}],
            "truncated",
            "the session stopped: retries_exhausted",
            None,
        ),
        ([{"type": "session.status_terminated"}], "truncated", "the session was terminated", None),
        (
            [{"type": "session.error", "error": {"type": "x"}}, {"type": "session.status_terminated"}],
            "truncated",
            'error: {"type":"x"}',
            None,
        ),
        (
            [
                {"type": "span.outcome_evaluation_end", "result": "satisfied"},
                {"type": "session.status_idle", "stop_reason": {"type": "end_turn"}},
            ],
            "terminal",
            "the agent ended its turn",
            True,
        ),
    ],
)
def test_managed_endings(tmp_path, events, ending, reason, success):
    said = [{"type": "user.message", "content": TEXT}, {"type": "agent.message", "content": TEXT}]
    path = write(tmp_path / "x.jsonl", [[STREAM, event] for event in said + events])
    (episode,) = episodes(read(path))
    assert (*end(episode), episode.success) == (ending, reason, success)


# --- anthropic_api --------------------------------------------------------------------------------------------------


def test_anthropic_requests_that_repeat_each_other_are_one_episode():
    readings = read(FIXTURES / "anthropic_api" / "growing.jsonl")
    look, chat = episodes(readings)
    assert (look.records, chat.records) == (2, 3)
    assert roles(look) == "s u a t t u a t a"
    assert calls(look) == [
        ("lookup", '{"key":7}', "seven"),
        ("lookup", '{"key":8}', "no such key"),
        ("web_search", '{"query":"8"}', "[web_search_result]"),
    ]
    assert [s.result_status for s in look.steps] == ["ok", "error", "ok", None]
    assert (
        look.messages[2].thought == "both"
    )  # told by the first response, no longer sent by the second request
    assert usage(look) == [(10, 5), (10, 9), (None, None)]
    assert (look.model, look.temperature, look.user_id, look.tools) == (
        "claude-x",
        0.2,
        "u5",
        ["lookup", "web_search"],
    )
    assert look.episode_id == episode_id("anthropic_api", "msg_A")
    assert end(look) == ("terminal", "the agent ended its turn")
    assert roles(chat) == "s u a u a"
    assert end(chat) == ("truncated", "the log is cut off")
    assert Duplicate(records=1) in readings
    assert counted(readings) == 9


def anthropic(messages: list[Any], response: Any, **more: Any) -> dict[str, Any]:
    return {
        "model": "claude-x",
        "max_tokens": 9,
        "system": "s",
        "messages": messages,
        "response": response,
        **more,
    }


@pytest.mark.parametrize(
    ("response", "ending", "reason"),
    [
        ({"content": TEXT, "stop_reason": "end_turn"}, "terminal", "the agent ended its turn"),
        ({"content": TEXT, "stop_reason": "refusal"}, "terminal", "the model refused"),
        ({"content": TEXT, "stop_reason": "max_tokens"}, "truncated", "the model's output limit"),
        ({"content": TEXT, "stop_reason": "model_context_window_exceeded"}, "truncated", "context overflow"),
        ({"content": TEXT, "stop_reason": "pause_turn"}, "truncated", "the turn was paused"),
        (
            {
                "content": [{"type": "tool_use", "id": "t", "name": "x", "input": {}}],
                "stop_reason": "tool_use",
            },
            "truncated",
            "last call is unanswered",
        ),
        (
            {"type": "error", "error": {"type": "overloaded_error"}},
            "truncated",
            "the request failed: overloaded_error",
        ),
        (None, "truncated", "the log stops before the agent's answer"),
    ],
)
def test_anthropic_endings_of_flat_rows(tmp_path, response, ending, reason):
    path = write(tmp_path / "x.jsonl", [anthropic([{"role": "user", "content": "Hi"}], response)])
    assert detect(path)[0].connector.name == "anthropic_api"
    (episode,) = episodes(read(path))
    assert end(episode) == (ending, reason)
    assert episode.task == "Hi"


def test_anthropic_bodies_that_are_json_text(tmp_path):
    request = {"model": "claude-x", "messages": [{"role": "user", "content": "Hi"}]}
    response = {"id": "msg_1", "content": TEXT, "stop_reason": "end_turn"}
    row = {"request": json.dumps(request), "response": {"body": json.dumps(response)}}
    path = write(tmp_path / "x.jsonl", [row])
    assert detect(path)[0].connector.name == "anthropic_api"
    (episode,) = episodes(read(path))
    assert [m.locator for m in episode.messages] == [
        "log:1#/request#/messages/0",
        "log:1#/response/body#/content/0",
    ]


def test_interrupted_calls_and_orphan_results_in_anthropic_logs(tmp_path):
    call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "deploy"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_9", "content": "deployed"}
    messages = [
        {"role": "user", "content": "Deploy"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "text", "text": "[Request interrupted by user]"}, result]},
    ]
    path = write(tmp_path / "x.jsonl", [anthropic(messages, {"content": TEXT, "stop_reason": "end_turn"})])
    readings = read(path)
    (episode,) = episodes(readings)
    assert calls(episode) == [("Bash", '{"command":"deploy"}', None)]
    assert [r.rule for r in rejects(readings, "part")] == ["orphan_result"]


def test_two_conversations_that_begin_alike_stay_two():
    continuations: Continuations[int] = Continuations()
    continuations.add(["hi"], ["hello"], 1)
    continuations.add(["hi"], ["hello"], 2)
    continuations.add(["hi", "hello", "x"], ["1"], 3)
    continuations.add(["hi", "hello", "y"], ["2"], 4)
    continuations.add(["hi", "hello", "z"], ["3"], 5)
    assert continuations.chains == [[1, 4], [2, 3], [5]]
    continuations.add([], [], 6)
    continuations.add([], [], 7)
    assert continuations.chains[3:] == [[6], [7]]


# --- openai_requests --------------------------------------------------------------------------------------------------


def test_openai_requests_that_continue_each_other_are_one_episode():
    readings = read(FIXTURES / "openai_requests" / "proxy.jsonl")
    look, chat, retried, branch, failed = episodes(readings)
    assert [e.records for e in (look, chat, retried, branch, failed)] == [2, 3, 2, 1, 1]
    assert roles(look) == "s u a t t a"
    assert calls(look) == [
        ("lookup", '{"key":7}', "seven"),
        ("lookup", '{"key":8}', "Error: no such key"),
        ("search", '{"q":"8"}', None),
    ]
    assert look.messages[2].thought == "both at once"  # the second request no longer sends it
    assert usage(look) == [(10, 5), (20, 6)]
    assert [step.tools for step in look.steps] == [None, None, ["lookup", "search"]]
    assert (look.model, look.policy_id, look.user_id, look.tools) == (
        "gpt-x",
        "gpt-x@t=0.2#prompt:dcc6603f",
        "u5",
        ["lookup"],
    )
    assert end(look) == ("truncated", "last call is unanswered")
    assert Duplicate(records=1) in readings
    assert [r.rule for r in rejects(readings)] == ["not_a_conversation"] * 2 + ["malformed_record"]
    assert [r.rule for r in rejects(readings, "part")] == ["other_choice", "bad_answer"]
    assert end(failed) == ("truncated", "the log is cut off")
    assert counted(readings) == 13


def test_openai_retries_and_branches_are_conversations_whose_copied_decisions_have_one_name():
    _, chat, retried, branch, _ = episodes(read(FIXTURES / "openai_requests" / "proxy.jsonl"))
    assert [e.messages[-1].content for e in (chat, retried, branch)] == ["More.", "Bye.", "I can't."]
    assert end(chat) == ("terminal", "the answer ended: stop")  # the failed request before it was sent again
    assert end(retried) == ("truncated", "the model's output limit")
    keys = [[step.decision_key for step in episode.steps] for episode in (chat, retried, branch)]
    assert all(key is not None for episode in keys for key in episode)
    assert {episode[0] for episode in keys} == {keys[0][0]}
    assert len({key for episode in keys for key in episode}) == 5


def test_litellm_payloads_keep_their_settings_apart():
    (episode,) = episodes(read(FIXTURES / "openai_requests" / "litellm.jsonl"))
    assert (episode.temperature, episode.tools, episode.user_id) == (0.5, ["lookup"], "u7")
    assert episode.cost_usd == 0.003
    assert episode.started_at == 1767348001500000
    assert end(episode) == ("terminal", "the answer ended: stop")


@pytest.mark.parametrize(
    ("response", "ending", "reason"),
    [
        ({"error": {"code": 429, "type": "tokens"}}, "truncated", "the request failed: 429"),
        ({"error": "bad gateway"}, "truncated", "the request failed: error"),
        (
            {"choices": [{"message": {"content": "Cut"}, "finish_reason": "content_filter"}]},
            "truncated",
            None,
        ),
        ({"choices": [{"message": {"content": "Hi"}}]}, "terminal", "end of conversation"),
        ({"choices": []}, "truncated", "the log stops before the agent's answer"),
        (None, "truncated", "the log stops before the agent's answer"),
    ],
)
def test_openai_request_endings(tmp_path, response, ending, reason):
    row = {"request": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}, "response": response}
    (episode,) = episodes(read(write(tmp_path / "x.jsonl", [row]), "openai_requests"))
    assert end(episode) == (ending, reason or "the content filter stopped it")


def test_a_response_id_that_repeats_names_no_answer(tmp_path):
    """Some servers give every response the same id."""
    rows = [
        {
            "request": {"model": "m", "messages": [{"role": "user", "content": text}]},
            "response": {"id": "chatcmpl-constant", "choices": [{"message": {"content": "Yes."}}]},
        }
        for text in ("One?", "Two?")
    ]
    one, two = episodes(read(write(tmp_path / "x.jsonl", rows)))
    assert one.episode_id != two.episode_id
    assert one.steps[0].decision_key != two.steps[0].decision_key or one.steps[0].decision_key is None


def test_anthropic_branches_name_what_they_share(tmp_path):
    hello = {"id": "msg_01234567890", "content": TEXT, "stop_reason": "end_turn"}
    begin = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": TEXT}]
    rows = [
        anthropic(begin[:1], hello),
        *(
            anthropic(
                [*begin, {"role": "user", "content": text}],
                {"id": f"msg_{text:0>12}", "content": TEXT, "stop_reason": "end_turn"},
            )
            for text in ("a", "b")
        ),
    ]
    whole, branch = episodes(read(write(tmp_path / "x.jsonl", rows)))
    assert (whole.records, branch.records) == (2, 1)
    assert whole.steps[0].decision_key == branch.steps[0].decision_key is not None
    assert whole.steps[1].decision_key != branch.steps[1].decision_key


# --- langsmith_runs -------------------------------------------------------------------------------------------------


def test_langsmith_runs_of_a_trace_are_one_episode_and_one_per_sub_agent():
    readings = read(FIXTURES / "langsmith_runs" / "agent.jsonl")
    main, below = episodes(readings)
    assert (main.records, below.records, counted(readings)) == (4, 0, 6)
    assert roles(main) == "s u a t a"
    assert calls(main) == [("lookup", '{"key":7}', "seven")]
    assert usage(main) == [(11, 3), (11, 3)]
    assert (main.model, main.temperature, main.tools, main.session_id) == ("m-1", 0.5, ["lookup"], "th")
    assert end(main) == ("terminal", "the run ended: stop")
    assert (below.parent_episode_id, below.task) == (main.episode_id, "Sub-task")
    assert main.group_id == below.group_id == main.episode_id
    assert [r.rule for r in rejects(readings)] == ["not_a_conversation", "nameless_run"]


def test_langsmith_thoughts_are_those_of_each_runs_own_answer():
    """The next run is not sent what was thought before."""
    main, below = episodes(read(FIXTURES / "langsmith_runs" / "agent.jsonl"))[:2]
    assert [m.thought for m in main.messages if m.role == "assistant"] == ["The key is 7.", None]
    assert below.messages[-1].thought == "A part of it."


def langsmith(**more: Any) -> dict[str, Any]:
    inputs = {"messages": [{"role": "user", "content": "Hi"}]}
    return {"id": "r", "trace_id": "t", "dotted_order": "1", "run_type": "llm", "inputs": inputs, **more}


@pytest.mark.parametrize(
    ("more", "ending", "reason"),
    [
        ({}, "truncated", "the run has no outputs yet"),
        ({"error": "boom"}, "truncated", "error: boom"),
        ({"outputs": {"role": "assistant", "content": "Hi"}}, "terminal", "the run ended"),
        (
            {
                "outputs": {
                    "choices": [{"finish_reason": "length", "message": {"role": "assistant", "content": "H"}}]
                }
            },
            "truncated",
            "the model's output limit",
        ),
        ({"outputs": {"generations": [{"text": "Hi"}]}}, "terminal", "the run ended"),
        ({"outputs": {"message": {"type": "AIMessageChunk", "content": "Hi"}}}, "terminal", "the run ended"),
        ({"outputs": {"role": "ai", "content": TEXT}}, "terminal", "the run ended"),
    ],
)
def test_langsmith_endings_of_exported_runs(tmp_path, more, ending, reason):
    readings = read(write(tmp_path / "x.jsonl", [langsmith(**more)]))
    (episode,) = episodes(readings)
    assert end(episode) == (ending, reason)
    assert counted(readings) == len(readings) == 1


def test_a_langsmith_chain_is_read_where_there_is_no_model_run(tmp_path):
    asked = langsmith()["inputs"]["messages"]
    answer = {"role": "assistant", "content": "Hello"}
    runs = [
        langsmith(run_type="chain", outputs={"messages": [*asked, answer]}),
        langsmith(id="x", run_type="tool", inputs={"input": "?"}, parent_run_id="r"),
    ]
    readings = read(write(tmp_path / "x.jsonl", runs))
    (episode,) = episodes(readings)
    assert [m.content for m in episode.messages] == ["Hi", "Hello"]
    assert episode.records == 2


def test_a_langsmith_run_without_a_conversation_is_skipped(tmp_path):
    readings = read(write(tmp_path / "x.jsonl", [langsmith(run_type="tool", inputs={"input": 1})] * 2))
    assert readings == [Skip(reason="no_conversation")] * 2


# --- openai_stream --------------------------------------------------------------------------------------------------


def test_interleaved_fragments_belong_together_by_index():
    (episode,) = episodes(read(FIXTURES / "openai_stream" / "interleaved.jsonl"))
    assert calls(episode) == [
        ("get_price", '{"item":7}', "NOK 90"),
        ("get_stock", '{"site":"Oslo"}', "12 in stock"),
    ]
    assert [s.parallel_group for s in episode.steps] == [0, 0, None]
    assert (roles(episode), episode.model, episode.session_id) == ("u a t t a", "m", "s1")
    assert end(episode) == ("terminal", "end of conversation")


def test_streams_of_several_sessions_and_torn_ends():
    readings = read(FIXTURES / "openai_stream" / "cases.jsonl")
    first, second = episodes(readings)
    assert calls(first) == [("roll", '{"n":1}', "4"), ("roll", '{"n":2}', "6")]  # one index, two ids
    assert (first.messages[1].thought, usage(first)) == ("Two calls.", [(9, 4), (None, None)])
    assert end(first) == ("truncated", "the log is cut off")
    assert (roles(second), second.messages[1].content) == ("d a", "Answer")
    assert end(second) == ("truncated", "the stream stops before its end")
    assert [r.rule for r in rejects(readings, "part")] == ["other_choice", "nameless_call"]
    assert [r.rule for r in rejects(readings)] == [
        "chunk_without_id",
        "not_a_chunk",
        "not_a_chunk",
        "malformed_record",
    ]
    assert counted(readings) == 21


def chunk(response: str, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": response, "object": "chat.completion.chunk", "model": "m", "choices": [choice]}


def test_streams_without_sessions_and_legacy_calls(tmp_path):
    rows = [
        chunk("r1", {"content": "One."}),
        chunk("r2", {"function_call": {"name": "look", "arguments": '{"a"'}}),
        chunk("r1", {}, "stop"),
        chunk("r2", {"function_call": {"arguments": ": 1}"}}),
        chunk("r2", {}, "function_call"),
    ]
    alone, calling = episodes(read(write(tmp_path / "a.jsonl", rows)))
    assert (alone.native_id, alone.records, end(alone)[0]) == ("r1", 2, "terminal")
    assert (calls(calling), end(calling)[0]) == ([("look", '{"a":1}', None)], "truncated")
    talk = [rows[0], rows[2], {"role": "user", "content": "Look"}, rows[1], rows[3], rows[4]]
    talk.append({"role": "function", "name": "look", "content": "seen"})
    (whole,) = episodes(read(write(tmp_path / "b.jsonl", talk)))
    assert (roles(whole), whole.records, calls(whole)[0][2]) == ("a u a f".replace("f", "t"), 7, "seen")


def test_streams_where_keys_appear_late_and_nan_is_no_number(tmp_path):
    rows: list[Any] = [chunk(f"r{i}", {"content": "x"}, "stop") for i in range(120)]
    rows[60] = json.dumps(rows[60] | {"score": 0})[:-2] + "NaN}"
    piece = {"index": 0, "id": "c", "function": {"name": "square", "arguments": '{"n": 121}'}}
    rows.append(chunk("r120", {"tool_calls": [piece]}, "tool_calls"))
    found = episodes(read(write(tmp_path / "x.jsonl", rows)))
    assert len(found) == 121
    assert calls(found[-1]) == [("square", '{"n":121}', None)]


def test_a_stream_that_is_an_array(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(
        json.dumps([chunk("r", {"content": "On"}), chunk("r", {"content": "e"}, "stop")], indent=1)
    )
    (episode,) = episodes(read(path))
    assert (episode.messages[0].content, episode.records) == ("One", 2)


# --- telling formats apart ------------------------------------------------------------------------------------------

MESSAGE = {"role": "user", "content": "Hi"}
BLOCKS = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "x", "input": {}}]}


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"messages": [MESSAGE]}, "openai_messages"),
        ({"id": "a", "messages": [MESSAGE, BLOCKS]}, "openai_messages"),
        (anthropic([MESSAGE], None), "anthropic_api"),
        ({"request": {"model": "m", "messages": [MESSAGE]}, "response": {"choices": []}}, "openai_requests"),
        ({"request": {"model": "m", "messages": [MESSAGE]}, "response": {"error": {}}}, None),
        ({"request": {"model": "m", "input": "Hi"}, "response": {"output": []}}, "openai_responses"),
        ({"messages": [MESSAGE], "response": {"choices": []}, "model_parameters": {}}, "openai_requests"),
        ({"messages": [MESSAGE], "choices": [{"message": MESSAGE}]}, "openai_requests"),
        ({"messages": [MESSAGE], "note": 'say "choices": []'}, "openai_messages"),
        ({"request": {"system": "s", "messages": [MESSAGE]}, "response": {"content": []}}, "anthropic_api"),
        ({"type": "message", "payload": {}}, None),
        ({"timestamp": "t", "type": "event_msg", "payload": {"type": "x"}}, "codex_rollout"),
        ({"timestamp": "t", "type": "note", "payload": {}}, None),
        ({"type": "user", "sessionId": "s", "message": MESSAGE}, "claude_code"),
        ({"sessionId": "s", "projectHash": "p", "messages": []}, "gemini_cli"),
        ({"text": 'say "object": "chat.completion.chunk"', "role": "user"}, None),
        ({"object": "chat.completion", "id": "x", "choices": []}, None),
        (chunk("r", {}), "openai_stream"),
        ({"events": [{"author": "a", "content": "x"}]}, None),
        ({"eval_cases": []}, None),
        ({"post": "mortem", "patch": "work"}, None),
    ],
)
def test_look_alikes_are_told_apart(tmp_path, row, name):
    found = [claim.connector.name for claim in detect(write(tmp_path / "x.jsonl", [row, row]))]
    assert found[:1] == ([name] if name else [])


def test_a_wrong_format_says_so_for_every_record(tmp_path):
    path = write(tmp_path / "x.jsonl", [{"messages": [MESSAGE]}, {"other": 1}])
    for name in (*FORMATS, "anthropic_api", "openai_stream"):
        readings = read(path, name)
        assert counted(readings) == 2
        if name != "anthropic_api":
            assert not episodes(readings), name


# --- counts on real logs --------------------------------------------------------------------------------------------

_TURNS = "calls and results are messages too"
DIFFERENCES = {
    ("codex_rollout", "messages"): _TURNS,
    ("anthropic_managed", "messages"): "the system prompt, calls and results are messages too",
    ("adk_evalset", "messages"): _TURNS,
}
"""Why a count differs from the independent one; docs/formats/vendors.md has the same words."""

real = pytest.mark.skipif(not EXPECTED.is_file(), reason="the shared logs are not here")


def files(name: str) -> list[Path]:
    return sorted((LOGS / name).iterdir()) if (LOGS / name).is_dir() else []


def counts_of(path: Path) -> Counter[str]:
    readings = list(get(path.parent.name).read(Source(path, path.name)))
    for item in readings:
        assert not isinstance(item, Reject), item
    return counts_in(item for item in readings if isinstance(item, Episode))


def adjust(counts: Counter[str], name: str) -> Counter[str]:
    """The independent counts with what the documented differences come to: here no text stands beside a call."""
    if (name, "messages") in DIFFERENCES:
        counts["messages"] += counts["tool_calls"] + counts["tool_results"] + (name == "anthropic_managed")
    return counts


@real
@pytest.mark.parametrize("name", FORMATS)
def test_counts_agree_with_the_independent_ones(name):
    for path in files(name):
        assert +counts_of(path) == +adjust(independent(path), name), path


@real
@pytest.mark.parametrize("name", FORMATS)
def test_differences_are_those_of_the_documentation(name):
    counted = ((independent(path), counts_of(path)) for path in files(name))
    totals_as_told("formats/vendors.md", name, counted, DIFFERENCES)


def test_streams_that_begin_with_the_same_words_are_several_and_copies_are_one(store, tmp_path):
    """Of one prompt there are many runs: their responses tell them apart. The same file twice is one run."""
    question = {"role": "user", "content": "What should I wear today?"}
    for name, native, said in (("a", "1", "Coat"), ("b", "2", "Hat"), ("copy", "1", "Coat")):
        chunk = {"id": f"chatcmpl-{native}", "object": "chat.completion.chunk", "created": 1}
        choice = {"index": 0, "delta": {"content": said}, "finish_reason": "stop"}
        lines = [question, {**chunk, "choices": [choice]}]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    ingest(store, [tmp_path])
    assert store.con.sql("SELECT content FROM messages WHERE role = 'assistant' ORDER BY 1").fetchall() == [
        ("Coat",),
        ("Hat",),
    ]
    assert store.con.sql("SELECT sum(duplicates) FROM sources").fetchall() == [(2,)]
    assert store.con.sql("SELECT count(*) FROM quarantine").fetchall() == [(0,)]
