"""Codex's code mode: which tool a snippet calls, what it gives it, and how that went."""

from __future__ import annotations

import json
from typing import Any

import pytest

from logforge.connectors.agents.codex_code import failed_item, inner_call
from logforge.connectors.detection import get
from logforge.connectors.records.base import Source
from support.places import DATA
from support.read_logs import episodes


@pytest.mark.parametrize(
    ("snippet", "name", "arguments"),
    [
        (
            "const r = await tools.exec_command({cmd: 'pytest -q'}); text(r.output);",
            "exec_command",
            {"cmd": "pytest -q", "snippet": "const r = await tools.exec_command(…); text(r.output);"},
        ),
        (
            "await tools.apply_patch('a\\nb')",
            "apply_patch",
            {"input": "a\nb", "snippet": "await tools.apply_patch(…)"},
        ),
        (
            "const patch = `a\n+b`;\ntext(await tools.apply_patch(patch));",
            "apply_patch",
            {"input": "a\n+b", "snippet": "const patch = `a\n+b`;\ntext(await tools.apply_patch(…));"},
        ),
        (
            "const cmd = \"ls\"\nawait tools.run({cmd, 'n-1': [1, -2.5, {t: true, f: null,},], /* x */})",
            "run",
            {
                "cmd": "ls",
                "n-1": [1, -2.5, {"t": True, "f": None}],
                "snippet": 'const cmd = "ls"\nawait tools.run(…)',
            },
        ),
        (
            "// tools.a(1)\nawait tools?.['web.run']({q: \"tools.b(\"})",
            "web.run",
            {"q": "tools.b(", "snippet": "// tools.a(1)\nawait tools?.['web.run'](…)"},
        ),
        ("tools.run({c: '\\u{1F600}\\x41\\u0041\\'\\\n'})", "run", {"c": "😀AA'", "snippet": "tools.run(…)"}),
        ("tools.run(String.raw`a\\n`)", "run", {"input": "a\\n", "snippet": "tools.run(…)"}),
    ],
)
def test_the_one_tool_of_a_snippet_is_the_call(snippet, name, arguments):
    assert inner_call(snippet) == (name, arguments)


@pytest.mark.parametrize(
    "given",
    [
        "`a ${b}`",
        "{cmd: 'a' + b}",
        "{cmd}",
        "{...rest}",
        "{cmd: f(1)}",
        "{cmd: undefined}",
        "cmd",
        "1, 2",
        "{snippet: 1}",
        "{cmd: 'cut",
        "[" * 500,
    ],
)
def test_what_is_computed_or_cut_off_is_kept_as_the_snippet(given):
    snippet = f"const cmd = 'a'\n + other;\ntools.run({given})"
    assert inner_call(snippet) == ("run", {"input": snippet})


@pytest.mark.parametrize(
    "snippet", ["tools.a(1); tools.b(2)", "text('tools.a(1)')", "my.tools.a(1)", "tools.a", "", None, 7]
)
def test_several_tools_or_none_are_no_single_call(snippet):
    assert inner_call(snippet) is None


@pytest.mark.parametrize(
    ("item", "failed"),
    [
        ({"type": "CommandExecution", "exit_code": 1, "status": "completed"}, True),
        ({"type": "CommandExecution", "exit_code": 0, "status": "failed"}, False),
        ({"type": "FileChange", "status": "declined"}, True),
        ({"type": "McpToolCall", "status": "completed", "error": {"message": "x"}}, True),
        ({"type": "McpToolCall", "status": "completed"}, False),
        ({"type": "AgentMessage", "status": "completed"}, None),
        ({"type": "CommandExecution"}, None),
        (None, None),
    ],
)
def test_items_say_how_a_call_went(item, failed):
    assert failed_item(item) is failed


def line(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": "2026-01-05T10:00:00Z", "type": kind, "payload": payload}


def call(call_id: str) -> dict[str, Any]:
    return line("response_item", type="custom_tool_call", name="exec", input="tools.run({})", call_id=call_id)


def output(call_id: str, *texts: str) -> dict[str, Any]:
    parts = [{"type": "input_text", "text": text} for text in texts]
    return line("response_item", type="custom_tool_call_output", call_id=call_id, output=parts)


def done(code: int) -> dict[str, Any]:
    return line("event_msg", type="item_completed", item={"type": "CommandExecution", "exit_code": code})


COMPLETED, FAILED = (
    "Script completed\nWall time 1.5 seconds\nOutput:\n",
    "Script failed\nWall time 2 seconds\nOutput:\n",
)


@pytest.mark.parametrize(
    ("rows", "statuses"),
    [
        ([call("a"), done(1), output("a", COMPLETED, "x")], ["error"]),
        ([call("a"), done(0), output("a", COMPLETED, "Error: x")], ["ok"]),
        ([call("a"), done(0), done(2), output("a", COMPLETED, "x")], ["error"]),
        ([call("a"), done(0), output("a", FAILED, "x")], ["error"]),
        ([call("a"), output("a", COMPLETED, '{"exit_code": 3, "output": "x"}')], ["error"]),
        ([call("a"), call("b"), done(1), output("a", COMPLETED), output("b", COMPLETED)], ["ok", "ok"]),
        ([call("a"), output("a", COMPLETED), done(1), call("b"), output("b", COMPLETED)], ["ok", "ok"]),
    ],
)
def test_an_event_tells_the_status_of_the_one_snippet_at_work(tmp_path, write_jsonl, rows, statuses):
    path = write_jsonl(tmp_path / "x.jsonl", [line("session_meta", id="s"), *rows])
    (episode,) = episodes(list(get("codex_rollout").read(Source(path, "log"))))
    assert [(step.action, step.result_status) for step in episode.steps] == [
        ("run", status) for status in statuses
    ]
    assert episode.steps[0].latency_s in (1.5, 2.0)


def test_a_session_in_code_mode_has_its_tools():
    path = DATA / "connectors" / "codex_rollout" / "code_mode.jsonl"
    (episode,) = episodes(list(get("codex_rollout").read(Source(path, "log"))))
    first, second, third, fourth = episode.steps
    assert (first.action, first.result_status, json.loads(first.arguments)["cmd"]) == (
        "exec_command",
        "error",
        "pytest -q",
    )
    assert (second.action, second.result_status) == ("apply_patch", "ok")
    assert (third.action, json.loads(third.arguments)) == (
        "exec",
        {"input": "await Promise.all([tools.a(), tools.b()])"},
    )
    assert fourth.action == "respond"
