"""The connectors: what each makes of its format, and the laws that hold for all of them whatever they are fed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.connectors.detection import detect, get, registry
from logforge.connectors.episodes.text_calls import INTERFACE, command_name
from logforge.connectors.records import json as jsontext
from logforge.connectors.records.base import Connector, Source
from logforge.connectors.records.catalogue import BUILT_IN
from logforge.schemas.episode import Duplicate, Episode, Reject, Skip
from logforge.schemas.errors import UnknownName
from logforge.testing import variants
from logforge.testing.kit import LAWS, check_connector, counted, digest
from support.places import DATA, ROOT, SAMPLES, SHARED
from support.read_logs import assert_sound, episodes, rejects, resolve, tool_steps
from support.record_counts import BEGINS, count_records, records_of
from support.thoroughness import enough

FIXTURES = DATA / "connectors"
FILES = sorted(
    path
    for folder in (FIXTURES, SAMPLES)
    for path in folder.rglob("*")
    if path.is_file() and path.suffix not in (".md", ".yaml")
)


def read(path: Path, name: str | None = None, label: str = "log") -> list[Any]:
    connector = get(name) if name else detect(path)[0].connector
    return list(connector.read(Source(path, label)))


def by_native_id(path: Path, name: str | None = None) -> dict[str | None, Episode]:
    return {episode.native_id: episode for episode in episodes(read(path, name))}


# --- one format after the other ---------------------------------------------------------------------------------


def test_claude_lines_of_one_message_become_one_turn():
    readings = read(FIXTURES / "claude_split.jsonl")
    main, agent = episodes(readings)
    roles = ["user", "user", "assistant", "tool", "tool", "user", "assistant"]
    assert [m.role for m in main.messages] == roles
    turn = main.messages[2]
    assert (turn.content, turn.thought, turn.tokens_in, turn.tokens_out) == (
        "Reading both.",
        "two reads",
        12,
        211,
    )
    assert [(s.action, s.result, s.parallel_group) for s in tool_steps(main)] == [
        ("Read", "red", 0),
        ("Task", "It says blue.", 0),
    ]
    assert main.messages[5].content == "hurry up, please"
    assert main.messages[6].content == "They differ: red and blue."
    assert sum(m.tokens_out or 0 for m in main.messages) == 301
    assert (main.ending, main.policy_id, main.session_id, main.native_id) == ("terminal", "m-1", "s1", "s1")
    assert [s.latency_s for s in tool_steps(main)] == [4.0, 9.0]
    assert agent.parent_episode_id == main.episode_id
    assert agent.native_id == "s1/s1"
    assert agent.task == "read b.txt"
    assert tool_steps(agent)[0].result == "bl\n[image]\nue"


def test_claude_counts_every_line_once():
    readings = read(FIXTURES / "claude_split.jsonl")
    assert counted(readings) == 25
    skips = Counter()
    for item in readings:
        if isinstance(item, Skip):
            skips[item.reason] += item.records
    assert skips == {"summary_line": 1, "no_content": 1, "system_line": 1, "other_line": 1}
    assert sum(isinstance(item, Duplicate) for item in readings) == 1
    assert Counter(r.rule for r in rejects(readings)) == {
        "malformed_record": 1,
        "not_an_object": 4,
        "no_message": 1,
    }
    assert sum(e.records for e in episodes(readings)) == 14


def test_claude_lines_that_the_program_wrote_are_messages_and_no_task(tmp_path, write_jsonl):
    def line(kind: str, text: str, **more: Any) -> dict[str, Any]:
        return {"type": kind, "sessionId": "s", "message": {"role": kind, "content": text}, **more}

    caveat, skill, hook = (line("user", text, isMeta=True) for text in ("Caveat: …", "Do so.", "Hook: ok"))
    asked, said = line("user", "Go on"), line("assistant", "Done.")
    path = write_jsonl(
        tmp_path / "x.jsonl", [caveat, asked, skill, said, hook, line("assistant", "", isMeta=True)]
    )
    readings = read(path)
    (episode,) = episodes(readings)
    assert [m.content for m in episode.messages] == ["Caveat: …", "Go on", "Do so.", "Done.", "Hook: ok"]
    assert (episode.task, episode.ending) == ("Go on", "terminal")
    assert Skip(reason="meta_line") in readings


def test_claude_interruptions_and_refusals():
    readings = read(FIXTURES / "claude_interrupted.jsonl")
    (episode,) = episodes(readings)
    refused, failed, lost = episode.steps
    assert refused.result_status == "refused"
    assert (failed.result_status, failed.error_class) == ("error", "not_found")
    assert (lost.result, lost.result_status) == (None, "missing")
    assert (episode.ending, episode.ending_reason) == ("truncated", "interrupted by the user")
    (orphan,) = rejects(readings)
    assert (orphan.level, orphan.rule, orphan.episode_id) == ("part", "orphan_result", episode.episode_id)


def lines_of(name: str) -> list[str]:
    return (FIXTURES / name).read_text("utf-8").splitlines()


def test_claude_identity_is_the_session_not_the_file(tmp_path):
    half = tmp_path / "half.jsonl"
    half.write_text("\n".join(lines_of("claude_split.jsonl")[:7]), "utf-8")
    whole = episodes(read(FIXTURES / "claude_split.jsonl"))[0]
    assert episodes(read(half, "claude_code"))[0].episode_id == whole.episode_id


def test_a_sub_agent_in_a_file_of_its_own_still_names_its_parent(tmp_path):
    session = "7c1d7d3e-0000-4000-8000-000000000001"
    lines = [line.replace('"s1"', f'"{session}"') for line in lines_of("claude_split.jsonl")]
    whole, path = tmp_path / "whole.jsonl", tmp_path / "agent.jsonl"
    whole.write_text("\n".join(lines), "utf-8")
    path.write_text("\n".join(line for line in lines if '"isSidechain": true' in line), "utf-8")
    (alone,) = episodes(read(path))
    main, agent = episodes(read(whole))
    assert (alone.episode_id, alone.parent_episode_id) == (agent.episode_id, main.episode_id)


def test_sessions_of_one_made_up_name_are_one_episode_only_when_they_begin_alike(tmp_path):
    lines = lines_of("claude_split.jsonl")
    grown, other = tmp_path / "grown.jsonl", tmp_path / "other.jsonl"
    grown.write_text("\n".join(lines[:4]), "utf-8")
    other.write_text("\n".join(line.replace("Compare a.txt", "Compare c.txt") for line in lines), "utf-8")
    main, short, third = (episodes(read(p))[0] for p in (FIXTURES / "claude_split.jsonl", grown, other))
    assert main.episode_id == short.episode_id != third.episode_id


def test_a_claude_session_cut_off_in_its_last_line_is_truncated(tmp_path):
    lines = lines_of("claude_split.jsonl")[:-1]
    path = tmp_path / "torn.jsonl"
    path.write_text("\n".join(lines) + '\n{"type": "user", "sess', "utf-8")
    main = episodes(read(path))[0]
    assert (main.ending, main.ending_reason) == ("truncated", "the log is cut off")


def test_a_torn_export_gives_its_whole_lines(tmp_path):
    text = (SAMPLES / "claude_code" / "simonw_sample_session.loglines.json").read_text("utf-8")
    path = tmp_path / "torn.json"
    path.write_text(text[: len(text) * 2 // 3], "utf-8")
    readings = read(path)
    (episode,) = episodes(readings)
    assert (episode.records, len(rejects(readings))) == (20, 1) or episode.records > 10
    assert rejects(readings)[0].locator == f"log#/loglines/{episode.records}"
    assert episode.ending == "truncated"


def test_two_sessions_in_one_file_are_two_episodes(tmp_path):
    lines = lines_of("claude_interrupted.jsonl")
    path = tmp_path / "two.jsonl"
    other = [line.replace('"s1"', '"s2"').replace('"uuid": "', '"uuid": "x') for line in lines]
    path.write_text("\n".join(line for pair in zip(lines, other, strict=True) for line in pair), "utf-8")
    readings = read(path)
    assert {e.session_id: e.records for e in episodes(readings)} == {"s1": 7, "s2": 7}


def test_star_dialogues():
    (episode,) = episodes(read(FIXTURES / "star.json"))
    assert (episode.source_kind, episode.policy_id, episode.native_id) == (
        "human_demo",
        "wizard:wiz-1",
        "900001",
    )
    assert (episode.task_id, episode.task, episode.user_id) == ("ride_book+weather", "Book a ride.", None)
    assert (episode.success, episode.ending) == (True, "terminal")
    assert [(s.kind, s.action) for s in episode.steps] == [
        ("clarify", "clarify"),
        ("tool", "ride"),
        ("tool", "weather"),
        ("clarify", "clarify"),
        ("respond", "respond"),
    ]
    asked, ride, weather, said, closing = episode.steps
    assert json.loads(asked.arguments) == {"label": "ride_ask_destination"}
    assert episode.messages[asked.position].thought == "where\nwhere to"
    assert json.loads(ride.arguments) == {"Destination": '"station"', "Price": "api.is_less_than(20)"}
    assert (ride.result, weather.result, weather.result_status) == ('{"Id":7,"Price":"12"}', "", "empty")
    assert (said.arguments, closing.arguments) == ("{}", '{"label":"anything_else"}')
    assert not any("Be polite" in (m.content or "") for m in episode.messages)
    assert [e["index"] for e in json.loads(episode.metadata)["interface_events"]] == [0, 2, 13]
    assert episode.started_at == 1_590_000_001_000_000


@pytest.mark.parametrize(
    ("level", "answers", "ending", "success"),
    [
        ("Complete", [True, False], "terminal", False),
        ("Complete", ["fine"], "terminal", None),
        ("EarlyDisconnectDuringDialogue", [], "truncated", None),
        (None, None, "truncated", None),
    ],
)
def test_star_endings(tmp_path, level, answers, ending, success):
    row = json.loads((FIXTURES / "star.json").read_text())
    row["CompletionLevel"] = level
    row["UserQuestionnaire"] = None if answers is None else [{"Answer": answer} for answer in answers]
    path = tmp_path / "s.json"
    path.write_text(json.dumps(row))
    (episode,) = episodes(read(path))
    assert (episode.ending, episode.success) == (ending, success)


def test_a_star_dialogue_in_which_nobody_spoke_is_skipped():
    assert read(SAMPLES / "star" / "2424.json") == [Skip(reason="empty_conversation")]


def test_swe_agent_text_mode():
    (episode,) = episodes(read(FIXTURES / "swe.traj", label="runs/model/swe.traj"))
    assert [m.role for m in episode.messages] == ["system", "user"] + ["assistant", "tool"] * 3
    assert [s.action for s in episode.steps] == ["bash", "edit", "submit"]
    run, edit, submit = episode.steps
    assert json.loads(run.arguments) == {"command": "PYTHONPATH=. python run.py"}
    assert json.loads(edit.arguments) == {"command": "edit 1:1\nx = 1\nend_of_edit"}
    assert (run.result_status, run.latency_s, edit.result_status, submit.result) == (
        "error",
        0.5,
        "empty",
        "diff --git a b",
    )
    assert episode.messages[2].thought == "Run it.\n"
    assert (episode.ending, episode.success, episode.task_id) == ("terminal", None, "swe")
    assert episode.task is not None
    assert episode.task.startswith("ISSUE:")
    assert json.loads(episode.metadata)["demo_messages"] == 1
    assert (episode.source_kind, episode.policy_id) == ("agent_log", None)


def test_swe_agent_function_calls_name_the_function():
    (episode,) = episodes(read(SAMPLES / "swe_agent_traj" / "function_calling_simple.traj"))
    assert [s.action for s in episode.steps] == ["find_file", "open", "edit", "bash", "submit"]
    assert json.loads(episode.steps[0].arguments) == {"file_name": "missing_colon.py"}
    assert all(s.result_status != "missing" for s in episode.steps)
    assert episode.ending_reason == "no exit status, but the last action is submit"


@pytest.mark.parametrize(
    ("status", "ending"),
    [
        ("submitted", "terminal"),
        ("submitted (exit_cost)", "truncated"),
        ("exit_context", "truncated"),
        (None, "terminal"),
    ],
)
def test_swe_agent_endings(tmp_path, status, ending):
    row = json.loads((FIXTURES / "swe.traj").read_text())
    row["info"]["exit_status"] = status
    path = tmp_path / "x.traj"
    path.write_text(json.dumps(row))
    assert episodes(read(path))[0].ending == ending


@pytest.mark.parametrize(
    ("label", "calls", "kind"),
    [
        ("human_thought_x.traj", 0, "human_demo"),
        ("ctf/rev/rock.traj", 0, "human_demo"),
        ("ctf/rev/rock.traj", 3, "agent_log"),
        ("replay__x/marshmallow-1867.traj", 0, "agent_log"),
        ("humanevalfix-python-0.traj", 0, "agent_log"),
    ],
)
def test_swe_agent_demonstrations_by_people(tmp_path, label, calls, kind):
    row = json.loads((FIXTURES / "swe.traj").read_text())
    row["info"]["model_stats"] = {"api_calls": calls, "instance_cost": 0}
    path = tmp_path / Path(label).name
    path.write_text(json.dumps(row))
    assert episodes(read(path, label=label))[0].source_kind == kind


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("ls -F\n", "bash"),
        ("  ./rock\n", "bash"),
        ("/usr/bin/python3 x.py", "bash"),
        ("python x.py", "bash"),
        ("A=1 B='x y' make all", "bash"),
        ("(cd x; make)", "bash"),
        ("cd a && open b.py", "bash"),
        ("./submit", "bash"),
        ("create_table x", "bash"),
        ("| x", "bash"),
        ("#only", "bash"),
        ("# first look\nfind_file a", "find_file"),
        ("  scroll_down\n", "scroll_down"),
        ("submit", "submit"),
        ("edit 1:2\nls\nend_of_edit", "edit"),
        ("exit_forfeit", "exit_forfeit"),
    ],
)
def test_a_command_is_bash_unless_it_is_the_agents_own(command, name):
    assert command_name(command, INTERFACE) == name
    assert command_name(command) == "bash"


@pytest.mark.parametrize(
    "listed",
    [
        "get_symbols [<path>] - gets the symbols\nsummarize <path> - sums up",
        "get_symbols:\n  docstring: gets the symbols\n  signature: get_symbols [<path>]\n\nsummarize:\n  docstring: sums up",
    ],
)
def test_swe_agent_prompts_list_further_commands(tmp_path, listed):
    row = json.loads((FIXTURES / "swe.traj").read_text())
    prompt = f"SETTING: x\n\nCOMMANDS:\n{listed}\n\nPlease note that\ncd: is no command here\n"
    row["history"][0]["content"] = prompt
    row["trajectory"][0]["action"] = "get_symbols a.py\n"
    row["trajectory"][1]["action"] = "cd: a\n"
    path = tmp_path / "x.traj"
    path.write_text(json.dumps(row))
    assert [s.action for s in episodes(read(path))[0].steps] == ["get_symbols", "bash", "submit"]


def test_tau_bench_trials():
    first, second, third = episodes(read(FIXTURES / "tau.json"))
    assert (first.score, first.success, first.ending, first.ending_reason) == (
        1.0,
        True,
        "terminal",
        "the user ended it",
    )
    assert (second.success, second.score, second.ending) == (None, None, "truncated")
    assert (third.success, third.ending_reason) == (False, "handed over to a human")
    assert first.group_id == second.group_id != third.group_id
    assert [(s.result_status, s.error_class) for s in tool_steps(first)] == [
        ("error", "not_found"),
        ("ok", None),
    ]
    assert first.reference == '[{"kwargs":{},"name":"change"}]'
    assert (first.native_id, first.user_id, first.task) == ("1/0", "u1", "Change it")
    assert len({e.episode_id for e in (first, second, third)}) == 3


def test_openai_parallel_reused_and_legacy_calls():
    found = by_native_id(FIXTURES / "openai_cases.jsonl")

    def results(name: str) -> list[str | None]:
        return [s.result for s in tool_steps(found[name])]

    assert results("parallel") == ["40", "75"]
    assert results("reused") == ["120 rows", "8 rows", None]
    assert results("same-id-in-one-turn") == ["four", "six"]
    assert results("legacy") == ["4", "6"]
    assert results("as-text") == ["a.py", None]
    assert results("one-result-for-two") == ["1 and 2", "1 and 2"]
    assert results("blocks") == ["before\n[image]\nafter", ""]
    assert found["blocks"].messages[-2].content == "Go on, please."
    assert found["legacy"].messages[0].role == "developer"


def test_openai_arguments_are_kept_and_marked():
    steps = tool_steps(by_native_id(FIXTURES / "openai_cases.jsonl")["arguments"])
    assert [s.arguments for s in steps] == [
        "{}",
        "{}",
        "{}",
        '{"city":"Bergen"}',
        '{"city":"Oslo"}',
        '{"zip":"00420"}',
        '{"path": "/tmp/a", "content": "unfinis',
        '{"n":18446744073709551617}',
    ]
    assert [s.arguments_status for s in steps] == ["ok"] * 3 + ["repaired", "ok", "ok", "invalid", "ok"]


def test_openai_parts_that_are_wrong_are_set_aside_alone():
    readings = read(FIXTURES / "openai_cases.jsonl")
    odd = by_native_id(FIXTURES / "openai_cases.jsonl")["odd"]
    parts = [r for r in rejects(readings) if r.episode_id == odd.episode_id]
    assert Counter(r.rule for r in parts) == {"unknown_role": 3, "bad_tool_calls": 1, "nameless_call": 2}
    assert [(s.kind, s.action) for s in odd.steps] == [("tool", "ok"), ("clarify", "clarify")]
    assert odd.steps[0].result == "part\n[image_url]"
    orphans = [r for r in rejects(readings) if r.rule == "orphan_result"]
    assert [r.locator for r in orphans] == ["log:6#/messages/2", "log:6#/messages/4"]
    assert Counter(r.rule for r in rejects(readings) if r.level == "record") == {
        "malformed_record": 1,
        "not_a_conversation": 1,
    }
    assert Skip(reason="empty_conversation") in readings
    assert counted(readings) == len(lines_of("openai_cases.jsonl"))


@pytest.mark.parametrize(
    ("more", "last", "ending"),
    [
        ({}, "assistant", "terminal"),
        ({}, "user", "truncated"),
        ({}, "call", "truncated"),
        ({"success": False}, "call", "truncated"),
        ({"success": False}, "submit", "terminal"),
        ({}, "submit", "truncated"),
        ({"reward": 0.5}, "user", "terminal"),
        ({"truncated": True, "reward": 0.5}, "assistant", "truncated"),
        ({"terminated": True}, "user", "terminal"),
    ],
)
def test_openai_endings(tmp_path, conversation, write_jsonl, more, last, ending):
    row = conversation("a")
    del row["success"]
    row["messages"] = row["messages"][: {"assistant": 4, "user": 1}.get(last, 2)]
    if last == "submit":
        row["messages"][1]["tool_calls"][0]["function"]["name"] = "submit"
    path = write_jsonl(tmp_path / "x.jsonl", [row | more])
    episode = episodes(read(path))[0]
    assert episode.ending == ending
    assert (episode.success, episode.score) == (more.get("success"), more.get("reward"))


def test_a_label_on_a_chat_judges_its_last_answer_alone(tmp_path, write_jsonl):
    chat = [{"role": role, "content": text} for role, text in zip("uaua", ("a", "b", "c", "d"), strict=True)]
    for message in chat:
        message["role"] = {"u": "user", "a": "assistant"}[message["role"]]
    rated = [chat[0], chat[1] | {"rating": 3}, *chat[2:]]
    rows = [
        {"messages": chat, "label": False},
        {"messages": chat, "success": False},
        {"messages": chat, "label": False, "tools": [{"name": "x"}]},
        {"messages": rated, "label": True},
        {"messages": chat[:3], "label": True},
    ]
    found = episodes(read(write_jsonl(tmp_path / "x.jsonl", rows)))
    assert [[s.position for s in e.steps] for e in found] == [[3], [1, 3], [1, 3], [1, 3], [1]]
    assert [len(e.messages) for e in found] == [4, 4, 4, 4, 3]
    assert (found[0].task, found[0].success, found[0].ending) == ("a", False, "terminal")


def test_lines_that_are_single_messages_are_gathered_by_session():
    readings = read(FIXTURES / "session_lines_torn.jsonl")
    found = {e.session_id: e for e in episodes(readings)}
    assert {name: e.records for name, e in found.items()} == {"ok": 2, "torn": 3}
    assert [(r.rule, r.locator) for r in rejects(readings)] == [("malformed_record", "log:6")]
    assert (found["ok"].ending, found["torn"].ending, found["torn"].ending_reason) == (
        "terminal",
        "truncated",
        "the log is cut off",
    )
    assert tool_steps(found["torn"])[0].arguments == '{"place":"Tromsø"}'


def test_encodings():
    readings = read(FIXTURES / "encoding.jsonl")
    first, second = episodes(readings)
    assert [e.locator for e in (first, second)] == ["log:1", "log:3"]
    assert first.messages[1].content == "first\u2028second\u2029third\u0085end"
    assert second.messages[0].content == "m\ufffd then\x00after"
    assert second.messages[1].content == "glass \U0001f378"
    assert second.score is None


# --- laws ---------------------------------------------------------------------------------------------------------


BY_FORMAT: dict[str, list[Path]] = {name: [] for name in BUILT_IN}
for _path in FILES:
    for _claim in detect(_path)[:1]:
        BY_FORMAT[_claim.connector.name].append(_path)


def test_every_connector_has_files_here():
    assert [name for name, files in BY_FORMAT.items() if not files] == []


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_laws(name, law):
    foreign = [files[0] for other, files in BY_FORMAT.items() if other != name]
    report = check_connector(
        get(name), BY_FORMAT[name], laws=[law], count_records=count_records(name), foreign=foreign
    )
    report.raise_if_broken()


def test_no_reading_depends_on_the_hash_seed():
    """All connectors in one process: `check_connector` would start one for each."""
    code = "import runpy, sys; sys.path.insert(0, sys.argv[2]); print(runpy.run_path(sys.argv[1])['digest_of_all']())"
    done = subprocess.run(
        [sys.executable, "-c", code, __file__, str(ROOT / "tests")],
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == digest_of_all().split()


def digest_of_all() -> str:
    return " ".join(digest(get(name), files) for name, files in sorted(BY_FORMAT.items()))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_record_is_counted_once_and_everything_is_sound(path):
    readings = read(path)
    assert counted(readings) == records_of(path)
    assert_sound(readings)
    assert read(path) == readings
    parts = [r for r in rejects(readings) if r.level == "part"]
    assert {r.episode_id for r in parts} <= {e.episode_id for e in episodes(readings)}


@pytest.mark.parametrize("path", [FIXTURES / "swe.traj", *sorted((SAMPLES / "swe_agent_traj").iterdir())])
def test_the_locator_of_a_command_leads_to_all_of_it(path):
    for episode in episodes(read(path)):
        for step in tool_steps(episode):
            call = resolve(path, step.locator)
            if isinstance(call, str):
                assert json.loads(step.arguments) == {"command": call.removesuffix("\n")}
            else:
                assert step.action in jsontext.canonical(call)


def small_records(name: str, limit: int = 30_000) -> list[list[Any]]:
    """The records of a format's small files."""
    return [
        [record for _, record in Source(path, "log").records() if not isinstance(record, Reject)]
        for path in BY_FORMAT[name]
        if path.stat().st_size <= limit
    ]


SOURCES = {name: small_records(name, 600_000 if name == "tau_bench" else 30_000) for name in BUILT_IN}


@pytest.mark.parametrize("name", sorted(BUILT_IN))
@settings(max_examples=enough(40, 300), deadline=None)
@given(data=st.data())
def test_mutated_records_never_raise_and_are_counted_once(tmp_path_factory, name, data):
    records = data.draw(st.sampled_from(SOURCES[name]))
    choose = data.draw(st.randoms(use_true_random=False))
    shape = variants.mutant(variants.Shape("lines", records), choose)
    path = tmp_path_factory.getbasetemp() / f"{name}.jsonl"
    path.write_bytes(shape.data())
    readings = read(path, name)
    if name not in BEGINS and name != "inspect_eval":
        assert counted(readings) == count_records(name)(path)
    assert_sound(readings)


@pytest.mark.parametrize("name", sorted(BUILT_IN))
@settings(max_examples=enough(20, 120), deadline=None)
@given(data=st.data())
def test_damaged_bytes_never_raise(tmp_path_factory, name, data):
    """Also those of another format's files."""
    path = data.draw(st.sampled_from([p for p in FILES if p.stat().st_size < 15_000]))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    damaged = tmp_path_factory.getbasetemp() / f"damaged-{name}"
    damaged.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    detect(damaged)
    assert_sound(read(damaged, name))


@pytest.mark.parametrize("name", sorted(BUILT_IN))
@pytest.mark.parametrize(
    "content", [b"", b"\n \n", b"[]", b"[\n", b"{", b"null", b"\x00\xff", b"[" * 5000, b'{"a":' * 5000]
)
def test_files_with_nothing_in_them_never_raise(tmp_path, name, content):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    readings = read(path, name)
    assert not episodes(readings)
    assert counted(readings) <= 1
    assert_sound(readings)


def test_a_bad_record_does_not_take_its_neighbours_with_it(tmp_path, conversation):
    rows = [json.dumps(conversation(str(i))) for i in range(4)]
    rows[1] = rows[1][:-9]
    lines = tmp_path / "x.jsonl"
    lines.write_text("\n".join(rows), "utf-8")
    assert [e.native_id for e in episodes(read(lines))] == ["0", "2", "3"]
    trials = json.loads((FIXTURES / "tau.json").read_text())
    array = tmp_path / "torn.json"
    array.write_text(json.dumps(trials, indent=1)[:-40], "utf-8")
    readings = read(array)
    assert [e.native_id for e in episodes(readings)] == ["1/0", "1/1"]
    assert [r.locator for r in rejects(readings)] == ["log#/2"]


def test_an_episode_is_the_same_wherever_its_record_lies(tmp_path, conversation):
    row = conversation("a")
    (tmp_path / "lines.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(conversation("b")) + "\n")
    (tmp_path / "array.json").write_text(json.dumps([conversation("c"), row], indent=2))
    (tmp_path / "one.json").write_text(json.dumps(row, indent=2, sort_keys=True))
    found = [
        next(e.episode_id for e in episodes(read(tmp_path / name)) if e.native_id == "a")
        for name in ("lines.jsonl", "array.json", "one.json")
    ]
    assert len(set(found)) == 1


# --- telling formats apart ----------------------------------------------------------------------------------------


def test_the_registry_holds_what_is_built_in():
    assert sorted(BUILT_IN) == [name for name in registry() if name in BUILT_IN]
    for name, connector in registry().items():
        assert isinstance(connector, Connector)
        assert connector.name == name
    with pytest.raises(UnknownName, match="did you mean 'tau_bench'") as error:
        get("taubench")
    assert error.value.valid == list(registry())


ASKED = {"role": "user", "content": "Hi"}
SAID = {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]}
ITEM = {"class_": "text_observation", "content": "Hi", "source": "user"}


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        ([{"task_id": 1, "reward": 1.0, "info": {}, "traj": [ASKED]}], "tau_bench"),
        ([{"task_id": 1, "reward": 1.0, "info": {}, "messages": [ASKED]}], "openai_messages"),
        (
            [{"type": "assistant", "sessionId": "s", "uuid": "u", "message": {**SAID, "id": "m"}}],
            "claude_code",
        ),
        (
            [{"model": "m", "max_tokens": 9, "system": "s", "messages": [ASKED], "response": SAID}],
            "anthropic_api",
        ),
        ([{"object": "chat.completion.chunk", "id": "r", "choices": [{"delta": {}}]}], "openai_stream"),
        ([{"messages": [ASKED], "choices": [{"message": SAID}], "id": "r"}], "openai_requests"),
        ([{"instance_id": "o__r-1", "messages": [ASKED], "model": "m"}], "openai_messages"),
        ([{"id": "a", "content": [ITEM], "details": {}}], "adp_std"),
    ],
)
def test_shapes_that_look_alike_are_told_apart(tmp_path, rows, name):
    for text in (json.dumps(rows), json.dumps(rows[0]) + "\n"):
        path = tmp_path / "x.json"
        path.write_text(text)
        claims = detect(path)
        if claims or name != "tau_bench":  # tau-bench writes arrays alone
            assert [claim.connector.name for claim in claims][:1] == [name], text


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_file_is_claimed_by_its_format_alone(path):
    expected = (
        path.parent.name
        if path.parent != FIXTURES
        else {"claude": "claude_code", "swe": "swe_agent_traj", "tau": "tau_bench", "star": "star"}.get(
            path.stem.partition("_")[0], "openai_messages"
        )
    )
    assert [claim.connector.name for claim in detect(path)] == [expected]


CLAIMED = {
    "adp_raw": {"swe-gym_openhands_sampled_trajectories.sample_raw.json": "openai_messages"},
    "chat_feedback": {"kto_en_demo.json": "openai_messages"},
}
"""Files of other folders that a connector reads, and reads right (see test_formats_counts)."""


@pytest.mark.skipif(not (SHARED / "logs").is_dir(), reason="the shared logs are not here")
def test_no_other_format_is_claimed():
    wrong = {}
    for path in sorted((SHARED / "logs").glob("*/**/*")):
        if path.is_file():
            folder = path.relative_to(SHARED / "logs").parts[0]
            claimed = [claim.connector.name for claim in detect(path)]
            expected = CLAIMED.get(folder, {}).get(path.name) or (folder if folder in BUILT_IN else None)
            if claimed != ([expected] if expected else []):
                wrong[f"{folder}/{path.name}"] = claimed
    assert wrong == {}
