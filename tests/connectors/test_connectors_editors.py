"""What is special in the sessions that editors and their assistants keep."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from logforge.connectors.detection import detect
from logforge.connectors.records.base import Source
from logforge.ingestion.sources.discover import find
from logforge.schemas.episode import Episode, Skip
from support.places import DATA
from support.read_logs import episodes, rejects, tool_steps
from support.written_files import database

FILES = DATA / "connectors"


def read(path: Path, name: str) -> list[Any]:
    (claim,) = detect(path)
    assert claim.connector.name == name
    return list(claim.connector.read(Source(path, "log")))


def written(folder: Path, value: Any, name: str = "x.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(value))
    return path


def roles(episode: Episode) -> str:
    return " ".join(message.role[0] for message in episode.messages)


# --- bare lists of messages -------------------------------------------------------------------------------------------


def test_a_bare_list_is_one_conversation_of_either_vendor():
    (openai,) = episodes(read(FILES / "message_list" / "conv.json", "message_list"))
    assert [(s.arguments, s.result, s.parallel_group) for s in tool_steps(openai)] == [
        ('{"city":"Riga"}', "rain", 0),
        ('{"city":"Oslo"}', "snow", 0),
    ]
    assert (openai.records, openai.ending, openai.task) == (6, "terminal", "Riga and Oslo?")
    (anthropic,) = episodes(read(FILES / "message_list" / "blocks.json", "message_list"))
    (step,) = tool_steps(anthropic)
    assert (step.action, step.result, step.result_status, step.error_class) == (
        "read",
        "no such file",
        "error",
        "not_found",
    )
    assert anthropic.messages[1].thought == "Read it."


def test_lists_in_a_list_are_conversations_of_their_own():
    found = episodes(read(FILES / "message_list" / "several.json", "message_list"))
    assert [(e.locator, e.records, len(e.messages)) for e in found] == [
        ("log#/0", 1, 5),
        ("log#/1", 1, 4),
        ("log#/2", 1, 2),
    ]


@pytest.mark.parametrize(
    "first",
    [
        {"role": "user", "content": "x", "rating": 5},
        {"role": "teacher", "content": "x"},
        {"role": "user", "content": "Use <tool_call> for calls"},
        {"type": "message", "role": "user", "content": "x"},
    ],
)
def test_what_only_looks_like_a_bare_list_is_not_claimed(tmp_path, first):
    claims = detect(written(tmp_path, [first, {"role": "assistant", "content": "y"}]))
    assert "message_list" not in [claim.connector.name for claim in claims]


def test_a_bare_list_that_is_cut_off_is_truncated(tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes((FILES / "message_list" / "conv.json").read_bytes()[:-20])
    (episode,) = episodes(read(path, "message_list"))
    assert (episode.ending, episode.ending_reason, episode.records) == ("truncated", "the log is cut off", 5)


# --- Cline and Roo Code -----------------------------------------------------------------------------------------------


def test_a_task_of_cline_with_calls_in_blocks():
    readings = read(FILES / "cline" / "api_conversation_history.json", "cline")
    (task,) = episodes(readings)
    assert roles(task) == "u s a t s a t t u s a"
    assert [(s.action, s.result_status) for s in task.steps] == [
        ("read_file", "ok"),
        ("replace_in_file", "error"),
        ("execute_command", "refused"),
        ("attempt_completion", "missing"),
    ]
    turn = task.messages[2]
    assert (turn.thought, turn.tokens_in, turn.tokens_out, turn.cost_usd) == (
        "Look at the file first.",
        900,
        60,
        0.0036,
    )
    assert (task.ending, task.ending_reason) == ("terminal", "the agent completed the task")
    assert (task.model, task.started_at) == ("claude-sonnet-4", 1_735_689_600_000_000)
    assert task.messages[8].content == "<feedback>\nEdit first, then run.\n</feedback>"
    assert Skip(reason="encrypted_reasoning") in readings


def test_a_task_of_cline_with_calls_in_tags():
    readings = read(FILES / "cline" / "tags.json", "cline")
    (task,) = episodes(readings)
    assert [(s.kind, s.action, s.result_status) for s in task.steps] == [
        ("tool", "write_to_file", "ok"),
        ("tool", "execute_command", "error"),
        ("respond", "respond", None),
        ("tool", "list_files", "ok"),
    ]
    written_file, command, _, _ = (json.loads(step.arguments) for step in task.steps)
    assert written_file == {
        "path": "hello.py",
        "content": 'print("</content> is a word")\nprint("hello")',
        "line_count": "2",
    }
    assert command == {"command": "python hello.py &&\necho done"}
    assert [m.content for m in task.messages if m.role == "user"][1:] == [
        "The user provided the following feedback:\n<feedback>\nIt is in src.\n</feedback>"
    ]
    assert [r.rule for r in rejects(readings)] == ["lost_call"]
    assert (task.ending, task.ending_reason) == ("truncated", "the response was interrupted")
    assert task.messages[-1].role == "assistant"


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, "ts": 1, **more}


def called(name: str) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "a", "name": name, "input": {}}],
        "ts": 2,
    }


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("Command executed.\nOutput:\nError: 3 tests", "ok"),
        ("Command executed in terminal within '/w'. Exit code: 0\nOutput:\nError", "ok"),
        ("Command execution was not successful, inspect the cause.\nExit code: 2", "error"),
        ("Skipping tool [x] due to user rejecting a previous tool.", "refused"),
        ("The user denied this operation and provided the following feedback:", "refused"),
        ("Error: no such file", "error"),
        ("", "empty"),
    ],
)
def test_clines_own_words_tell_how_a_call_went(tmp_path, text, status):
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": text}]}
    (task,) = episodes(read(written(tmp_path, [said("go"), called("execute_command"), result]), "cline"))
    assert task.steps[0].result_status == status


def test_a_summary_of_roo_is_context_and_a_task_that_goes_on_has_not_ended(tmp_path):
    rows = [
        said("go"),
        called("attempt_completion"),
        said("So far: all done.", isSummary=True),
        said("And now b"),
    ]
    (task,) = episodes(read(written(tmp_path, rows), "cline"))
    assert roles(task) == "u a s u"
    assert (task.ending, task.ending_reason) == ("truncated", "last call is unanswered")
    (done,) = episodes(read(written(tmp_path, rows[:3]), "cline"))
    assert done.ending == "terminal"


def test_a_header_of_another_tool_is_the_users_text(tmp_path):
    tagged = {"role": "assistant", "content": "<read_file>\n<path>a</path>\n</read_file>", "ts": 1}
    rows = [
        said("go"),
        tagged,
        said("[list_files for 'a'] Result:\nx"),
        said("[read_file for 'a'] Result:\ny"),
    ]
    (task,) = episodes(read(written(tmp_path, rows), "cline"))
    assert roles(task) == "u a u t"
    assert task.steps[0].result == "[read_file for 'a'] Result:\ny"


# --- Cursor -----------------------------------------------------------------------------------------------------------


def test_a_conversation_of_cursor_is_put_together_from_its_bubbles():
    readings = read(FILES / "cursor" / "state.vscdb", "cursor")
    renamed, asked, helper = episodes(readings)
    assert renamed.task == "Rename @x.rs\nand test it."
    assert [(s.action, s.arguments, s.result_status, s.parallel_group) for s in renamed.steps] == [
        ("read_file_v2", '{"path":"x.rs"}', "ok", 0),
        ("read_file_v2", '{"path":"y.rs"}', "error", 0),
        ("run_terminal_command_v2", '{"command":"cargo test"}', "error", None),
        ("edit_file_v2", '{"relativeWorkspacePath":"x.rs"}', "refused", None),
    ]
    turn = renamed.messages[1]
    assert (turn.content, turn.thought, turn.tokens_in, turn.model) == (
        "I look at both files.",
        "Read first.",
        1200,
        "claude-4.5-sonnet",
    )
    assert (renamed.ending, renamed.model, renamed.session_id) == (
        "truncated",
        "claude-4.5-sonnet",
        renamed.native_id,
    )
    assert "Encryption" not in renamed.metadata
    assert (asked.ending_reason, [s.action for s in asked.steps]) == (
        "the user stopped it",
        ["respond", "run_terminal_cmd"],
    )
    assert helper.parent_episode_id == renamed.episode_id


def test_what_of_cursors_is_gone_or_cannot_be_read_is_told():
    readings = read(FILES / "cursor" / "state.vscdb", "cursor")
    helper = episodes(readings)[-1]
    assert helper.steps == []  # its last bubble calls a tool that it does not name
    assert [m.content for m in helper.messages] == ["Find the callers.", "There are none."]
    assert [(r.rule, r.level) for r in rejects(readings)] == [
        ("other_branch", "part"),
        ("malformed_record", "part"),
        ("nameless_call", "part"),
        ("malformed_record", "record"),
    ]
    assert Skip(reason="bubble_without_conversation", records=2) in readings


def test_a_database_of_cursor_without_conversations_is_skipped(tmp_path):
    path = tmp_path / "state.vscdb"
    path.write_bytes(database([["cursorDiskKV", {"key": "checkpointId:a", "value": "{}"}]]))
    assert read(path, "cursor") == [Skip(reason="no_conversation")]


def test_a_database_that_cursor_holds_is_one_source_with_its_log(tmp_path):
    path = tmp_path / "state.vscdb"
    path.write_bytes((FILES / "cursor" / "state.vscdb").read_bytes())
    with closing(sqlite3.connect(path)) as holder:
        holder.execute("PRAGMA journal_mode = WAL")
        new = json.dumps({"conversation": [{"type": 1, "text": "new"}, {"type": 2, "text": "yes"}]})
        holder.execute("INSERT INTO cursorDiskKV VALUES ('composerData:new', ?)", (new,))
        holder.commit()
        (found, shm) = find([tmp_path], tmp_path)
        assert [file.name for file in found.companions] == ["state.vscdb-wal"]
        assert shm.label == "state.vscdb-shm"
        assert "new" in {episode.task for episode in episodes(read(path, "cursor"))}


# --- opencode ---------------------------------------------------------------------------------------------------------

STEPS = [
    ("read", "ok", 0),
    ("bash", "error", 0),
    ("edit", "refused", 1),
    ("webfetch", "error", 1),
    ("respond", None, None),
]


def from_folder(home: Path) -> list[Any]:
    """A session of the folder `storage`, found as an ingest finds it."""
    sessions = [found for found in find([home], home) if "/session/" in found.label]
    (session,) = sessions
    (claim,) = detect(session.path)
    return list(claim.connector.read(Source(session.path, session.label, session.companions)))


def test_a_session_of_opencode_is_the_same_from_its_database_an_export_and_its_folder():
    stored = read(FILES / "opencode" / "opencode.db", "opencode")
    exported = read(FILES / "opencode" / "export.json", "opencode")
    filed = from_folder(DATA / "opencode_storage")
    for session in (episodes(stored)[0], *episodes(exported), *episodes(filed)):
        assert [(s.action, s.result_status, s.parallel_group) for s in session.steps] == STEPS
        assert roles(session) == "u s u a t t a t t s a"
        turn = session.messages[3]
        assert (turn.content, turn.thought, turn.tokens_in, turn.tokens_out) == (
            "I look.",
            "Look first.",
            1000,
            45,
        )
        assert (session.task, session.model, session.ending) == (
            "Mend the sum in a.py",
            "claude-sonnet-4",
            "terminal",
        )
        assert session.cost_usd == pytest.approx(0.035)
        assert session.steps[1].latency_s == 1.0
    assert filed[0].messages[0].locator.startswith("storage/part/msg_")


def test_a_sub_agent_of_opencode_that_was_stopped():
    readings = read(FILES / "opencode" / "opencode.db", "opencode")
    main, child = episodes(readings)
    assert (child.parent_episode_id, child.ending, child.ending_reason) == (
        main.episode_id,
        "truncated",
        "the user stopped it",
    )
    assert [(s.action, s.result_status) for s in child.steps] == [("grep", "missing")]
    assert Skip(reason="empty_conversation") in readings


def test_a_part_of_opencode_that_nobody_knows_leaves_no_decision(tmp_path):
    export = json.loads((FILES / "opencode" / "export.json").read_text())
    export["messages"][1]["parts"][3]["type"] = "hologram"
    (whole, part) = read(written(tmp_path, export), "opencode")
    assert (whole.rule, whole.level, part.rule, part.level) == (
        "unknown_part",
        "record",
        "unknown_part",
        "part",
    )
    assert part.locator == "log:1#/messages/1/parts/3"


def test_a_call_of_cursor_that_nobody_knows_leaves_no_decision(tmp_path):
    said = {"conversation": [{"type": 1, "text": "go"}, {"type": 2, "text": "", "toolFormerData": "odd"}]}
    path = tmp_path / "state.vscdb"
    path.write_bytes(database([["cursorDiskKV", {"key": "composerData:a", "value": json.dumps(said)}]]))
    assert [(r.rule, r.level) for r in rejects(read(path, "cursor"))] == [
        ("unknown_part", "record"),
        ("unknown_part", "part"),
    ]


@pytest.mark.parametrize("change", ["type", "role"])
def test_what_of_cline_nobody_knows_leaves_no_decision(tmp_path, change):
    call = called("read_file")
    if change == "role":
        call["role"] = "model"
    else:
        call["content"][0]["type"] = "toolUse"
    readings = read(written(tmp_path, [said("go"), call, said("and?")]), "cline")
    assert [(r.rule, r.level) for r in rejects(readings)] == [
        ("unknown_part", "record"),
        ("unknown_part", "part"),
    ]


@pytest.mark.parametrize(
    ("told", "ending"),
    [
        ({"finish": "stop"}, ("terminal", "end of conversation")),
        ({"finish": "length"}, ("truncated", "the model's output limit")),
        ({"error": {"name": "MessageOutputLengthError"}}, ("truncated", "the model's output limit")),
        ({"error": {"name": "APIError", "data": {}}}, ("truncated", "error: APIError")),
        ({"error": {"name": ["odd"]}}, ("truncated", "error: unknown")),
    ],
)
def test_how_a_session_of_opencode_ends(tmp_path, told, ending):
    said = {"info": {"role": "user"}, "parts": [{"type": "text", "text": "go"}]}
    done = {"info": {"role": "assistant", **told}, "parts": [{"type": "text", "text": "done"}]}
    (session,) = episodes(
        read(written(tmp_path, {"info": {"id": "ses_1"}, "messages": [said, done]}), "opencode")
    )
    assert (session.ending, session.ending_reason) == ending


def test_parts_of_opencode_that_are_lost_are_told(tmp_path):
    home = tmp_path / "storage"
    shutil.copytree(DATA / "opencode_storage" / "storage", home)
    message = sorted((home / "message").glob("*/*.json"))[-1]
    message.write_text('{"cut')
    part = min((home / "part").glob("*/*.json"))
    part.write_text("[]")
    readings = from_folder(tmp_path)
    assert [(r.rule, r.level) for r in rejects(readings)] == [
        ("malformed_record", "part"),
        ("bad_message", "part"),
    ]
    (session,) = episodes(readings)
    assert [s.action for s in session.steps] == ["read", "bash", "edit", "webfetch"]


# --- Claude Code's lines without `sessionId` --------------------------------------------------------------------------


def test_what_claude_code_streams_is_a_session_with_its_sub_agents():
    readings = read(FILES / "claude_code" / "stream_json.jsonl", "claude_code")
    main, helper = episodes(readings)
    assert [(s.action, s.result) for s in main.steps] == [("Task", "three"), ("respond", None)]
    assert [(s.action, s.result) for s in helper.steps] == [("Bash", "3")]
    assert helper.parent_episode_id == main.episode_id
    assert main.session_id == helper.session_id == "5b0c6d3e-0000-4000-8000-00000000c0de"
    assert (helper.model, helper.task) == ("claude-haiku-4", "count")


def test_lines_of_claude_code_that_name_no_session_are_one_run():
    (episode,) = episodes(read(FILES / "claude_code" / "without_session.jsonl", "claude_code"))
    assert (episode.session_id, episode.task, episode.ending) == (None, "Read a.txt", "terminal")
    assert [(s.action, s.result, s.latency_s) for s in tool_steps(episode)] == [("Read", "hello", 1.0)]


@pytest.mark.parametrize(
    "row",
    [
        {"type": "user", "message": {"role": "user", "content": "x"}},
        {"type": "message", "uuid": "u", "message": {"role": "user", "content": "x"}},
        {"type": "user", "uuid": "u", "message": {"role": "model", "content": "x"}},
        {"type": "user", "uuid": "u", "message": "x"},
    ],
)
def test_lines_that_only_look_like_claude_codes_are_not_claimed(tmp_path, write_jsonl, row):
    claims = detect(write_jsonl(tmp_path / "x.jsonl", [row, row]))
    assert "claude_code" not in [claim.connector.name for claim in claims]


# --- Copilot CLI ------------------------------------------------------------------------------------------------------


def test_a_session_of_copilot_cli():
    readings = read(FILES / "copilot_cli" / "events.jsonl", "copilot_cli")
    (session,) = episodes(readings)
    assert [
        (s.action, s.arguments, s.result_status, s.parallel_group, s.latency_s) for s in session.steps
    ] == [
        ("bash", '{"command":"cat auth.py"}', "ok", 0, 2.0),
        ("view", '{"path":"b.py"}', "refused", 0, 1.0),
        ("edit", '{"path":"auth.py"}', "error", None, 1.0),
        ("respond", "{}", None, None, None),
    ]
    turn = session.messages[1]
    assert (turn.content, turn.thought, turn.tokens_out, turn.model) == (
        None,
        "I need both.",
        50,
        "claude-sonnet-4.6",
    )
    assert (session.task, session.ending, session.records) == ("Fix the auth bug", "terminal", 9)
    assert readings.count(Skip(reason="other_event")) == 3


def test_what_of_copilot_cli_nobody_knows_leaves_no_decision(tmp_path, write_jsonl):
    rows = [json.loads(line) for line in (FILES / "copilot_cli" / "events.jsonl").read_text().splitlines()]
    rows[4]["data"]["toolRequests"] = {"0": rows[4]["data"]["toolRequests"][0]}
    assert [
        r.level
        for r in rejects(read(write_jsonl(tmp_path / "x.jsonl", rows), "copilot_cli"))
        if r.rule == "unknown_part"
    ] == ["record", "part"]


# --- aider ------------------------------------------------------------------------------------------------------------


def test_a_chat_history_of_aider():
    readings = read(FILES / "aider" / "history.txt", "aider")
    first, second = episodes(readings)
    assert roles(first) == "u s u a t s u a t s a s"
    assert [(s.action, s.arguments, s.result, s.result_status) for s in first.steps] == [
        (
            "edit",
            '{"edits":[{"replace":"bar = 1\\n","search":"foo = 1\\n"}],"path":"a.py"}',
            "Applied edit to a.py",
            "ok",
        ),
        ("bash", '{"command":"pytest -q"}', None, "missing"),
        (
            "edit",
            '{"edits":[{"replace":"bar()\\n","search":"foo()\\n"}],"path":"b.py"}',
            "## SearchReplaceNoExactMatch: This SEARCH block failed to exactly match lines in b.py",
            "error",
        ),
        ("clarify", "{}", None, None),
    ]
    asked, answer = first.messages[2], first.messages[3]
    assert asked.content == first.task == "Rename foo to bar,\nand run the tests."
    assert "#### Why\n\n> A name says what a thing is." in (answer.content or "")
    assert (answer.tokens_in, answer.tokens_out, answer.cost_usd, answer.model) == (730, 95, 0.0027, "gpt-4o")
    assert (first.messages[7].tokens_in, first.messages[7].tokens_out) == (None, 80)
    assert json.loads(first.metadata)["started"] == "2026-01-05 10:00:00"
    assert (first.ending, first.started_at, second.ending, second.model) == (
        "terminal",
        None,
        "truncated",
        "o1-mini",
    )


def test_an_edit_of_aider_that_cannot_be_read_is_no_decision():
    readings = read(FILES / "aider" / "history.txt", "aider")
    _, whole = episodes(readings)
    (part,) = rejects(readings)
    assert (whole.steps, part.rule, part.level, part.episode_id) == (
        [],
        "unparsed_call",
        "part",
        whole.episode_id,
    )


AIDER = "# aider chat started at 2026-01-05 10:00:00\n\n"
BLOCK = "a.py\n```\n<<<<<<< SEARCH\nx\n=======\ny\n>>>>>>> REPLACE\n```\n\n"


@pytest.mark.parametrize(
    ("text", "steps", "rules"),
    [
        ("\n#### Go  \n\nDone.\n\n", ["respond"], []),
        # A block that nobody says was applied: the user may have asked how an edit looks.
        (f"\n#### Go  \n\n{BLOCK}> Tokens: 9 sent, 9 received.  \n", [], ["unparsed_call"]),
        # More files were edited than blocks can be read.
        (
            f"\n#### Go  \n\n{BLOCK}> Applied edit to a.py  \n> Applied edit to b.py  \n",
            [],
            ["unparsed_call"],
        ),
        (f"\n#### Go  \n\n{BLOCK}> Skipping edits to a.py  \n", ["edit"], []),
        ('\n#### Go  \n\n{\n  "edits": []\n}\n\n', [], ["unparsed_call"]),
        # Without the blanks at their ends aider's own lines look like headings and quotes.
        ("\n#### Go\n\nDone.\n\n", None, ["not_a_conversation"]),
        ("\n#### Go  \n\nDone.\n\n#### And th", ["respond"], ["malformed_record"]),
    ],
)
def test_what_aider_writes_is_read_only_where_it_is_certain(tmp_path, text, steps, rules):
    path = tmp_path / ".aider.chat.history.md"
    path.write_text("\n" + AIDER + text)
    readings = read(path, "aider")
    assert [r.rule for r in rejects(readings)] == rules
    found = [[s.action for s in episode.steps] for episode in episodes(readings)]
    assert found == ([] if steps is None else [steps])


def test_a_message_of_aiders_program_in_several_lines_is_nobodys_answer(tmp_path):
    path = tmp_path / ".aider.chat.history.md"
    path.write_text(
        AIDER + "#### /diff  \n> diff --git a/a.py b/a.py\n\n-x\n+y  \n\n#### Thanks  \n\nBye.\n\n"
    )
    (episode,) = episodes(read(path, "aider"))
    assert [(m.role, m.content) for m in episode.messages] == [
        ("user", "/diff"),
        ("system", "diff --git a/a.py b/a.py\n\n-x\n+y"),
        ("user", "Thanks"),
        ("assistant", "Bye."),
    ]
    assert episode.task == "Thanks"


# --- VS Code ----------------------------------------------------------------------------------------------------------


def test_a_journal_of_vs_code_is_read_as_it_stands_at_its_end():
    (session,) = episodes(read(FILES / "vscode_chat" / "journal.jsonl", "vscode_chat"))
    assert roles(session) == "u a t t a t a u a"
    assert [(s.action, s.arguments, s.result, s.parallel_group) for s in session.steps] == [
        ("read_file", '{"filePath":"/w/app.py"}', "from fastapi import FastAPI", 0),
        ("list_dir", '{"path":"/w"}', "app.py", 0),
        ("run_in_terminal", '{"command":"pytest -q"}', "3 passed", None),
        ("respond", "{}", None, None),
        ("respond", "{}", None, None),
    ]
    assert (session.messages[1].thought, session.records, session.ending) == (
        "Look at the app first.",
        9,
        "terminal",
    )


def test_what_vs_code_shows_of_a_call_is_not_taken_for_its_arguments():
    readings = read(FILES / "vscode_chat" / "session.json", "vscode_chat")
    (session,) = episodes(readings)
    assert [
        (s.action, s.arguments, s.arguments_status, s.result, s.result_status) for s in session.steps
    ] == [
        ("copilot_readFile", "", "invalid", None, "missing"),
        ("mcp_db_query", '{"sql":"SELECT 1"}', "ok", "1", "ok"),
        ("run_in_terminal", '{"command":"python a.py"}', "ok", "NameError: x", "error"),
        ("run_in_terminal", '{"command":"rm a.py"}', "ok", "", "refused"),
        ("respond", "{}", "ok", None, None),
        ("respond", "{}", "ok", None, None),
    ]
    # An edit without a call: the words hold it, and no decision is made of them.
    assert [r.rule for r in rejects(readings)] == ["unparsed_call"]
    assert session.messages[1].content == "I look at a.py."
    assert (session.ending, session.ending_reason) == ("truncated", "the user stopped it")


@pytest.mark.parametrize(
    ("line", "rules", "records", "steps"),
    [
        (6, ["malformed_record"], 8, 5),
        # The second request is lost: what follows changes it, and fits nothing.
        (7, ["malformed_record", "not_a_conversation"], 7, 4),
    ],
)
def test_a_journal_of_vs_code_that_lost_a_line_is_read_as_far_as_it_fits(
    tmp_path, line, rules, records, steps
):
    data = (FILES / "vscode_chat" / "journal.jsonl").read_text().splitlines()
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join([*data[:line], data[line][:20], *data[line + 1 :]]))
    readings = read(path, "vscode_chat")
    (session,) = episodes(readings)
    assert [r.rule for r in rejects(readings)] == rules
    assert (session.ending_reason, session.records, len(session.steps)) == (
        "the log is damaged",
        records,
        steps,
    )


@pytest.mark.parametrize(
    ("part", "levels"),
    [
        ({"kind": "toolCallV9", "tool": "x"}, ["record", "part"]),
        ({"kind": {"a": 1}}, ["record", "part"]),
        ({"kind": "toolInvocationSerialized", "tool": "x"}, ["record", "part"]),
        ({"kind": "progressMessage", "content": {"value": "…"}}, []),
    ],
)
def test_parts_of_vs_code_that_nobody_knows_leave_no_decision(tmp_path, part, levels):
    request = {"message": {"text": "Hi"}, "response": [{"value": "Hello."}, part]}
    whole = {"sessionId": "s", "creationDate": 1, "requests": [request]}
    readings = read(written(tmp_path, whole), "vscode_chat")
    assert [r.level for r in rejects(readings)] == levels
    assert len(episodes(readings)) == (not levels)


def test_a_result_of_vs_code_that_is_a_tree_is_its_text(tmp_path):
    leaf = {"type": 2, "text": "one"}, {"type": 2, "text": "two", "lineBreakBefore": True}
    tree = {"node": {"type": 1, "children": [{"type": 1, "children": list(leaf)}]}}
    call = {"id": "c", "name": "read", "arguments": "{}"}
    meta = {
        "toolCallRounds": [{"response": "", "toolCalls": [call]}],
        "toolCallResults": {"c": {"content": [{"value": tree}]}},
    }
    gone = {"message": "No", "shouldBeRemovedOnSend": {"requestId": "r"}, "response": [{"value": "no"}]}
    asked = {"message": "Read", "response": [], "result": {"metadata": meta}}
    readings = read(
        written(tmp_path, {"sessionId": "s", "creationDate": 1, "requests": [gone, asked]}), "vscode_chat"
    )
    (session,) = episodes(readings)
    assert (session.steps[0].result, session.task) == ("one\ntwo", "Read")
    assert [r.rule for r in rejects(readings)] == ["other_branch"]
