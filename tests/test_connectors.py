"""The connectors: what each makes of its format, and the laws that hold for all of them whatever they are fed."""

from __future__ import annotations

import json
import re
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import SAMPLES, SHARED
from logforge.connectors import BUILT_IN, detect, get, jsontext, registry
from logforge.connectors.base import Connector, Source
from logforge.connectors.content import part_text, text_of
from logforge.connectors.swe_agent import command_name
from logforge.schemas.episode import Duplicate, Episode, Reject, Skip
from logforge.schemas.errors import UnknownName

DATA = Path(__file__).parent / "data" / "connectors"
FILES = sorted(
    path
    for folder in (DATA, SAMPLES)
    for path in folder.rglob("*")
    if path.is_file() and path.suffix not in (".md", ".yaml")
)


def read(path: Path, name: str | None = None, label: str = "log") -> list[Any]:
    connector = get(name) if name else detect(path)[0].connector
    return list(connector.read(Source(path, label)))


def episodes(readings: list[Any]) -> list[Episode]:
    return [item for item in readings if isinstance(item, Episode)]


def rejects(readings: list[Any]) -> list[Reject]:
    return [item for item in readings if isinstance(item, Reject)]


def counted(readings: list[Any]) -> int:
    return sum(item.records for item in readings if not isinstance(item, Reject) or item.level == "record")


def by_native_id(path: Path, name: str | None = None) -> dict[str | None, Episode]:
    return {episode.native_id: episode for episode in episodes(read(path, name))}


def tool_steps(episode: Episode) -> list[Any]:
    return [step for step in episode.steps if step.kind == "tool"]


def assert_sound(readings: list[Any]) -> None:
    """What holds for everything a connector yields."""
    for item in readings:
        if not isinstance(item, Episode):
            assert isinstance(item, Reject | Skip | Duplicate)
            assert item.records > 0
            continue
        msgspec.convert(msgspec.to_builtins(item), Episode, strict=True)
        assert len(item.episode_id) == 32
        assert item.messages
        assert [m.position for m in item.messages] == list(range(len(item.messages)))
        assert [s.step for s in item.steps] == list(range(len(item.steps)))
        assert [s.position for s in item.steps] == sorted(s.position for s in item.steps)
        json.loads(item.metadata)
        results = set()
        for step in item.steps:
            assert item.messages[step.position].role == "assistant"
            assert (step.result_status is None) == (step.kind != "tool")
            assert (step.result_position is None) == (step.result is None)
            assert step.arguments_status == "invalid" or json.loads(step.arguments) is not ...
            if step.result_position is not None:
                results.add(step.result_position)
                answer = item.messages[step.result_position]
                assert step.result_position > step.position
                assert (answer.role, answer.content) == ("tool", step.result)
        assert results == {m.position for m in item.messages if m.role == "tool"}


# --- one format after the other ---------------------------------------------------------------------------------


def test_claude_lines_of_one_message_become_one_turn():
    readings = read(DATA / "claude_split.jsonl")
    main, agent = episodes(readings)
    assert [m.role for m in main.messages] == ["user", "assistant", "tool", "tool", "user", "assistant"]
    turn = main.messages[1]
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
    assert main.messages[4].content == "hurry up, please"
    assert main.messages[5].content == "They differ: red and blue."
    assert sum(m.tokens_out or 0 for m in main.messages) == 301
    assert (main.ending, main.policy_id, main.session_id, main.native_id) == ("terminal", "m-1", "s1", "s1")
    assert [s.latency_s for s in tool_steps(main)] == [4.0, 9.0]
    assert agent.parent_episode_id == main.episode_id
    assert agent.native_id == "s1/s1"
    assert agent.task == "read b.txt"
    assert tool_steps(agent)[0].result == "bl\n[image]\nue"


def test_claude_counts_every_line_once():
    readings = read(DATA / "claude_split.jsonl")
    assert counted(readings) == 25
    skips = Counter()
    for item in readings:
        if isinstance(item, Skip):
            skips[item.reason] += item.records
    assert skips == {"summary_line": 1, "meta_line": 1, "no_content": 1, "system_line": 1, "other_line": 1}
    assert sum(isinstance(item, Duplicate) for item in readings) == 1
    assert Counter(r.rule for r in rejects(readings)) == {
        "malformed_record": 1,
        "not_an_object": 4,
        "no_message": 1,
    }
    assert sum(e.records for e in episodes(readings)) == 13


def test_claude_interruptions_and_refusals():
    readings = read(DATA / "claude_interrupted.jsonl")
    (episode,) = episodes(readings)
    refused, failed, lost = episode.steps
    assert refused.result_status == "refused"
    assert (failed.result_status, failed.error_class) == ("error", "not_found")
    assert (lost.result, lost.result_status) == (None, "missing")
    assert (episode.ending, episode.ending_reason) == ("truncated", "interrupted by the user")
    (orphan,) = rejects(readings)
    assert (orphan.level, orphan.rule, orphan.episode_id) == ("part", "orphan_result", episode.episode_id)


def lines_of(name: str) -> list[str]:
    return (DATA / name).read_text("utf-8").splitlines()


def test_claude_identity_is_the_session_not_the_file(tmp_path):
    half = tmp_path / "half.jsonl"
    half.write_text("\n".join(lines_of("claude_split.jsonl")[:7]), "utf-8")
    whole = episodes(read(DATA / "claude_split.jsonl"))[0]
    assert episodes(read(half, "claude_code"))[0].episode_id == whole.episode_id


def test_a_sub_agent_in_a_file_of_its_own_still_names_its_parent(tmp_path):
    lines = [line for line in lines_of("claude_split.jsonl") if '"isSidechain": true' in line]
    path = tmp_path / "agent.jsonl"
    path.write_text("\n".join(lines), "utf-8")
    (alone,) = episodes(read(path))
    main, agent = episodes(read(DATA / "claude_split.jsonl"))
    assert (alone.episode_id, alone.parent_episode_id) == (agent.episode_id, main.episode_id)


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
    (episode,) = episodes(read(DATA / "star.json"))
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
    row = json.loads((DATA / "star.json").read_text())
    row["CompletionLevel"] = level
    row["UserQuestionnaire"] = None if answers is None else [{"Answer": answer} for answer in answers]
    path = tmp_path / "s.json"
    path.write_text(json.dumps(row))
    (episode,) = episodes(read(path))
    assert (episode.ending, episode.success) == (ending, success)


def test_a_star_dialogue_in_which_nobody_spoke_is_skipped():
    assert read(SAMPLES / "star" / "2424.json") == [Skip(reason="empty_conversation")]


def test_swe_agent_text_mode():
    (episode,) = episodes(read(DATA / "swe.traj", label="runs/model/swe.traj"))
    assert [m.role for m in episode.messages] == ["system", "user"] + ["assistant", "tool"] * 3
    assert [s.action for s in episode.steps] == ["python", "edit", "submit"]
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
    row = json.loads((DATA / "swe.traj").read_text())
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
    row = json.loads((DATA / "swe.traj").read_text())
    row["info"]["model_stats"] = {"api_calls": calls, "instance_cost": 0}
    path = tmp_path / "x.traj"
    path.write_text(json.dumps(row))
    assert episodes(read(path, label=label))[0].source_kind == kind


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("ls -F\n", "ls"),
        ("  ./rock\n", "rock"),
        ("/usr/bin/python3 x.py", "python3"),
        ("A=1 B='x y' make all", "make"),
        ("(cd x; make)", "cd"),
        ('"my tool" arg', "my tool"),
        ("# first look\nfind_file a", "find_file"),
        ("print('hello')", "print"),
        ("cd a && ls", "cd"),
        ("| x", "|"),
        ("/", "/"),
        ("#only", "#only"),
    ],
)
def test_the_action_of_a_command_is_its_program(command, name):
    assert command_name(command) == name


def test_tau_bench_trials():
    first, second, third = episodes(read(DATA / "tau.json"))
    assert (first.score, first.success, first.ending, first.ending_reason) == (
        1.0,
        True,
        "terminal",
        "the user ended it",
    )
    assert (second.success, second.ending) == (None, "truncated")
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
    found = by_native_id(DATA / "openai_cases.jsonl")

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
    steps = tool_steps(by_native_id(DATA / "openai_cases.jsonl")["arguments"])
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
    readings = read(DATA / "openai_cases.jsonl")
    odd = by_native_id(DATA / "openai_cases.jsonl")["odd"]
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
        ({"success": False}, "call", "terminal"),
        ({"reward": 0.5}, "user", "terminal"),
        ({"truncated": True, "reward": 0.5}, "assistant", "truncated"),
        ({"terminated": True}, "user", "terminal"),
    ],
)
def test_openai_endings(tmp_path, conversation, write_jsonl, more, last, ending):
    row = conversation("a")
    del row["success"]
    row["messages"] = row["messages"][: {"assistant": 4, "user": 1, "call": 2}[last]]
    path = write_jsonl(tmp_path / "x.jsonl", [row | more])
    assert episodes(read(path))[0].ending == ending


def test_lines_that_are_single_messages_are_gathered_by_session():
    readings = read(DATA / "session_lines_torn.jsonl")
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
    readings = read(DATA / "encoding.jsonl")
    first, second = episodes(readings)
    assert [e.locator for e in (first, second)] == ["log:1", "log:3"]
    assert first.messages[1].content == "first\u2028second\u2029third\u0085end"
    assert second.messages[0].content == "m\ufffd then\x00after"
    assert second.messages[1].content == "glass \U0001f378"
    assert second.score is None


# --- laws ---------------------------------------------------------------------------------------------------------


INNER = {"claude_code": "loglines", "inspect_json": "samples", "tau2_bench": "simulations"}
"""Formats whose records are the elements of a list in the document."""


def records_in(document: Any, name: str) -> int:
    """How many records a document of a format is: a document without its list, or with an empty one, is one."""
    listed = document.get(INNER.get(name)) if isinstance(document, dict) else None
    if name == "claude_code" and isinstance(listed, list) and "type" not in document:
        return len(listed)
    return len(listed) or 1 if isinstance(listed, list) and name != "claude_code" else 1


TEXT_RECORDS = {
    "reflexion_text": re.compile(r"^Question:", re.MULTILINE),
    "react_text": re.compile(r"^(?:\x1b\[1m)?(?:Question:|> Entering new )", re.MULTILINE),
}
"""What begins a record of the formats that are plain text."""


def expected_records(path: Path) -> int:
    name = detect(path)[0].connector.name
    if zipfile.is_zipfile(path):
        return sum(member.startswith("samples/") for member in zipfile.ZipFile(path).namelist())
    text = path.read_bytes().decode("utf-8-sig", "replace")
    if name in TEXT_RECORDS:
        return len(TEXT_RECORDS[name].findall(text))
    try:
        document = json.loads(text)
    except ValueError:
        return sum(bool(line.strip("\r \t")) for line in text.split("\n"))
    if isinstance(document, list):
        return len(document)
    return records_in(document, name)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_record_is_counted_once_and_everything_is_sound(path):
    readings = read(path)
    assert counted(readings) == expected_records(path)
    assert_sound(readings)
    assert read(path) == readings
    parts = [r for r in rejects(readings) if r.level == "part"]
    assert {r.episode_id for r in parts} <= {e.episode_id for e in episodes(readings)}


def resolve(path: Path, locator: str) -> Any:
    """The value that a locator leads to: a file's line or whole, then JSON pointers; text is JSON text for the next one."""
    place, *pointers = locator.removeprefix("log").split("#")
    data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    if place.startswith("!"):
        data = zipfile.ZipFile(path).read(place.removeprefix("!"))
    elif place:
        data = data.split(b"\n")[int(place.removeprefix(":")) - 1]
    if path.parent.name in TEXT_RECORDS:
        return re.sub(r"\x1b\[[0-9;]*m|^[A-Z][A-Za-z ]+(?: \d+)?: ?", "", data.decode("utf-8")).strip()
    value = jsontext.loads(data)
    for number, pointer in enumerate(pointers):
        value = jsontext.loads(value) if number else value
        for key in pointer.split("/")[1:]:
            value = (
                value[int(key)]
                if isinstance(value, list)
                else value[key.replace("~1", "/").replace("~0", "~")]
            )
    return value


def texts_at(value: Any) -> set[str]:
    if isinstance(value, str):
        return {value}
    whole = {jsontext.canonical(value), part_text(value)}
    if isinstance(value, dict):
        whole |= {
            text for key in ("content", "thinking", "Text") if (text := text_of(value.get(key))) is not None
        }
        if isinstance(value.get("content"), list):
            whole |= {part_text(part) for part in value["content"]}
    return whole


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_locator_leads_back_to_the_text(path):
    for episode in episodes(read(path)):
        resolve(path, episode.locator)
        for message in episode.messages:
            if message.content:
                first_lines = texts_at(resolve(path, message.locator))
                assert any(
                    text and (message.content.startswith(text) or message.content in text)
                    for text in first_lines
                ), message
        for step in tool_steps(episode):
            call = resolve(path, step.locator)
            if isinstance(call, str):
                # a call that is text itself; in a transcript the argument may stand in later lines
                given = json.loads(step.arguments).values()
                assert path.parent.name in TEXT_RECORDS or all(value in call for value in given)
            else:
                assert step.action in jsontext.canonical(call)
            if step.result:
                answer = resolve(path, step.result_locator)
                assert {step.result, step.result.partition("\n")[0]} & texts_at(answer)


REPLACEMENTS = (
    None,
    True,
    7,
    -1,
    1.5,
    10**30,
    "",
    "text",
    "[",
    [],
    {},
    [None],
    [7, "x"],
    {"type": "text"},
    {"role": "tool"},
)


def mutate(value: Any, choose: Any) -> Any:
    """A copy of a JSON value with one thing in it replaced, dropped, doubled or swapped."""
    if isinstance(value, dict) and value and choose.random() < 0.85:
        key = choose.choice(sorted(value))
        if choose.random() < 0.15:
            return {k: v for k, v in value.items() if k != key}
        return value | {key: mutate(value[key], choose)}
    if isinstance(value, list) and value and choose.random() < 0.85:
        index = choose.randrange(len(value))
        how = choose.random()
        if how < 0.1:
            return value[:index] + value[index + 1 :]
        if how < 0.2:
            return [*value[:index], value[index], *value[index:]]
        return [*value[:index], mutate(value[index], choose), *value[index + 1 :]]
    return choose.choice(REPLACEMENTS)


def small_records(folder: str, limit: int = 30_000) -> tuple[str, list[list[Any]]]:
    """Sources of a format, as lists of records."""
    sources = []
    for path in FILES:
        name = detect(path)[0].connector.name
        if name == folder and path.stat().st_size <= limit:
            records = [
                record for _, record in Source(path, "log").records() if not isinstance(record, Reject)
            ]
            sources.append(records)
    assert sources
    return folder, sources


SOURCES = dict(small_records(name, 600_000 if name == "tau_bench" else 30_000) for name in BUILT_IN)


@pytest.mark.parametrize("name", sorted(BUILT_IN))
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_mutated_records_never_raise_and_are_counted_once(tmp_path_factory, name, data):
    records = data.draw(st.sampled_from(SOURCES[name]))
    choose = data.draw(st.randoms(use_true_random=False))
    if len(records) > 8:
        start = choose.randrange(len(records) - 8)
        records = records[start : start + 8]
    for _ in range(choose.randrange(1, 6)):
        if records:
            index = choose.randrange(len(records))
            records = [*records[:index], mutate(records[index], choose), *records[index + 1 :]]
    path = tmp_path_factory.getbasetemp() / f"{name}.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    readings = read(path, name)
    lines = sum(records_in(record, name) for record in records)
    if len(records) != 1 or not isinstance(records[0], list):
        assert counted(readings) == lines
    assert_sound(readings)


@pytest.mark.parametrize("name", sorted(BUILT_IN))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damaged_bytes_never_raise(tmp_path_factory, name, data):
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
    trials = json.loads((DATA / "tau.json").read_text())
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
    with pytest.raises(UnknownName, match="tau_bench"):
        get("tau")


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_file_is_claimed_by_its_format_alone(path):
    expected = (
        path.parent.name
        if path.parent != DATA
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


QUIRKS = ["001", "002", "004", "005", "006", "007", "008", "009", "010", "013", "014", "015", "018", "019"]


@pytest.mark.skipif(not (SHARED / "quirks").is_dir(), reason="the shared quirk cases are not here")
@pytest.mark.parametrize("case", QUIRKS)
def test_quirks(case):
    (folder,) = (SHARED / "quirks").glob(f"{case}-*")
    expected = json.loads((folder / "expect.json").read_text("utf-8"))
    readings = [item for path in sorted((folder / "input").iterdir()) for item in read(path, label=path.name)]
    found = episodes(readings)
    steps = [step for episode in found for step in tool_steps(episode)]
    counts = {
        "episodes": len(found),
        "messages": sum(m.role != "tool" for e in found for m in e.messages),
        "tool_calls": len(steps),
        "tool_results": sum(s.result_position is not None for s in steps),
        "unanswered_calls": sum(s.result_position is None for s in steps),
        "quarantined": len(rejects(readings)),
    }
    for key, count in counts.items():
        wanted = expected.get(key, count)
        low, high = wanted if isinstance(wanted, list) else (wanted, wanted)
        assert low <= count <= high, key
    for place in expected.get("quarantine_location", []):
        assert f"{place['file']}:{place['line']}" in {r.locator for r in rejects(readings)}
    for fact in expected["values"]:
        assert_fact(fact, found)
    for text in expected.get("must_not_appear_as_own_message", []):
        assert text not in {m.content for e in found for m in e.messages}
    assert_sound(readings)


def assert_fact(fact: dict[str, Any], found: list[Episode]) -> None:
    found = [e for e in found if "episode" not in fact or e.native_id == fact["episode"]]
    if "message_text" in fact:
        role = fact.get("role")
        assert any(
            m.content == fact["message_text"] and role in (None, m.role) for e in found for m in e.messages
        )
        return
    if "output_tokens_total" in fact:
        assert sum(m.tokens_out or 0 for e in found for m in e.messages) == fact["output_tokens_total"]
        return
    steps = [s for e in found for s in tool_steps(e) if "call" not in fact or s.tool_call_id == fact["call"]]
    if "nth_call" in fact:
        steps = [steps[fact["nth_call"] - 1]]
    assert any(agrees(step, fact) for step in steps), fact


def agrees(step: Any, fact: dict[str, Any]) -> bool:
    arguments = json.loads(step.arguments) if step.arguments_status != "invalid" else None
    checks = {
        "name": lambda wanted: step.action == wanted,
        "arguments": lambda wanted: arguments == wanted,
        "arguments_must_not_equal": lambda wanted: arguments != wanted,
        "arguments_text_contains": lambda wanted: wanted in step.arguments,
        "result_text": lambda wanted: step.result == wanted,
        "result_text_contains": lambda wanted: all(
            w in (step.result or "") for w in ([wanted] if isinstance(wanted, str) else wanted)
        ),
        "result_is_error": lambda wanted: (step.result_status in ("error", "timeout")) == wanted,
        "result_has_non_text": lambda wanted: ("[image]" in (step.result or "")) == wanted,
        "answered": lambda wanted: (step.result_position is not None) == wanted,
    }
    return all(check(fact[key]) for key, check in checks.items() if key in fact)
