"""Research logs: InterCode, Reflexion, ToolBench, ToolEval and ReAct transcripts: what each connector makes of its format."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.connectors.benchmarks.intercode import call_of
from logforge.connectors.detection import detect, get
from logforge.connectors.records.base import Source
from logforge.connectors.records.pyliteral import NotLiteral, fields, literal
from logforge.connectors.trajectories.react_text import action_of
from logforge.schemas.episode import Episode, Reject, Skip
from support.places import DATA
from support.real_counts import LOGS, counts_in, independent, totals_as_told

FIXTURES = DATA / "connectors"


def read(path: Path, name: str, label: str | None = None) -> list[Any]:
    return list(get(name).read(Source(path, label or path.name)))


def episodes(readings: list[Any]) -> list[Episode]:
    return [item for item in readings if isinstance(item, Episode)]


def rejects(readings: list[Any]) -> list[Reject]:
    return [item for item in readings if isinstance(item, Reject)]


def counted(readings: list[Any]) -> int:
    return sum(item.records for item in readings if not isinstance(item, Reject) or item.level == "record")


def assert_sound(readings: list[Any]) -> None:
    """What holds for every episode."""
    ids = {episode.episode_id for episode in episodes(readings)}
    assert {r.episode_id for r in rejects(readings) if r.level == "part"} <= ids | {None}
    for item in episodes(readings):
        msgspec.convert(msgspec.to_builtins(item), Episode, strict=True)
        assert [m.position for m in item.messages] == list(range(len(item.messages)))
        results = [s.result_position for s in item.steps if s.result_position is not None]
        assert sorted(results) == [m.position for m in item.messages if m.role == "tool"]
        for step in item.steps:
            assert item.messages[step.position].role == "assistant"
            assert step.result_position is None or step.result_position > step.position
            assert step.arguments_status == "invalid" or json.loads(step.arguments) is not ...
        json.loads(item.metadata)


ODD = (None, True, 7, 1.5, 10**30, "", "text", [], {}, [None], {"role": "tool"})


def mutate(value: Any, choose: Any) -> Any:
    """A copy of a JSON value with one thing in it replaced or dropped."""
    if isinstance(value, dict) and value and choose.random() < 0.85:
        key = choose.choice(sorted(value))
        if choose.random() < 0.15:
            return {k: v for k, v in value.items() if k != key}
        return value | {key: mutate(value[key], choose)}
    if isinstance(value, list) and value and choose.random() < 0.85:
        index = choose.randrange(len(value))
        inserted = [] if choose.random() < 0.2 else [mutate(value[index], choose)]
        return [*value[:index], *inserted, *value[index + 1 :]]
    return choose.choice(ODD)


def one(path: Path, name: str, label: str | None = None) -> Episode:
    (episode,) = episodes(read(path, name, label))
    return episode


def put(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1), "utf-8")
    return path


def fixture(name: str) -> Path:
    (path,) = (FIXTURES / name).iterdir()
    return path


# --- InterCode ------------------------------------------------------------------------------------------------------


def run_of(**changes: Any) -> dict[str, Any]:
    history = {
        "thoughts": ["look first", "that failed", "done"],
        "actions": ["execute[ls [a]]", "ls", "submit"],
        "observations": [
            "a\n",
            "Error executing query: Your last `execute` action did not contain bash code",
            "",
        ],
        "rewards": [0, 0, 0.5],
        "valid_action": [True, True, False],
    }
    entry = {
        "environment": "ic_bash",
        "dataset": "./data/nl2bash/nl2bash_fs_1.json",
        "task_id": 4,
        "query": "Count the files",
        "turn_history": history | changes.pop("history", {}),
        "summary": {"max_reward": 0.5, "turns_taken": 3, "turns_max": 10} | changes.pop("summary", {}),
    }
    return entry | changes


def test_an_intercode_run_keeps_every_reward_at_its_step(tmp_path):
    episode = one(put(tmp_path / "bash_gpt-3.5_react_10_turns_fs_1.json", {"4": run_of()}), "intercode")
    assert [(s.action, s.arguments) for s in episode.steps] == [
        ("execute", '{"command":"ls [a]"}'),
        ("execute", '{"command":"ls"}'),
        ("submit", "{}"),
    ]
    assert [s.logged_reward for s in episode.steps] == [0.0, 0.0, 0.5]
    assert [s.result_status for s in episode.steps] == ["ok", "error", "error"]
    assert [m.thought for m in episode.messages if m.role == "assistant"] == [
        "look first",
        "that failed",
        "done",
    ]
    assert (episode.task, episode.task_id, episode.native_id) == ("Count the files", "nl2bash_fs_1/4", "4")
    assert (episode.model, episode.policy_id) == ("gpt-3.5", "gpt-3.5/react")
    assert (episode.score, episode.success, episode.ending, episode.ending_reason) == (
        0.5,
        False,
        "terminal",
        "submitted",
    )
    assert episode.tools is None


def test_a_submission_by_the_harness_is_no_decision_of_the_agent(tmp_path):
    path = put(tmp_path / "x.json", {"4": run_of(summary={"turns_max": 2, "max_reward": 1.0})})
    episode = one(path, "intercode")
    assert [s.action for s in episode.steps] == ["execute", "execute"]
    assert (episode.ending, episode.success) == ("truncated", True)
    assert episode.ending_reason == "step limit: 2 turns, then the harness submitted"
    assert json.loads(episode.metadata)["harness_submit"]["reward"] == 0.5
    assert episode.model is None


@pytest.mark.parametrize(
    ("actions", "rewards", "limit", "ending", "reason"),
    [
        (["a", "b"], [0.2, 1.0], 2, "terminal", "solved: the last reward is 1"),
        (["a", "b"], [1.0, 0.2], 2, "truncated", "step limit: 2 turns"),
        (["a", "b"], [0.2, 0.3], 3, "truncated", "neither solved nor submitted"),
        ([], [], 3, "truncated", "neither solved nor submitted"),
    ],
)
def test_intercode_endings(tmp_path, actions, rewards, limit, ending, reason):
    history = {"actions": actions, "observations": ["x"] * len(actions), "rewards": rewards}
    entry = run_of(turn_history=history, summary={"turns_max": limit, "max_reward": max(rewards, default=0)})
    episode = one(put(tmp_path / "x.json", {"0": entry}), "intercode")
    assert (episode.ending, episode.ending_reason) == (ending, reason)
    assert episode.score == max(rewards, default=0)


@pytest.mark.parametrize(
    ("action", "environment", "name", "arguments"),
    [
        ("SELECT 1", "ic_sql", "execute", {"command": "SELECT 1"}),
        ("submit;", "ic_sql", "execute", {"command": "submit;"}),
        (" submit ", "ic_bash", "submit", None),
        ("skip", "ic_bash", "skip", None),
        ("execute[join a", "ic_bash", "execute", {"command": "join a"}),
        ("execute[find x \\;]\nObs", "ic_bash", "execute", {"command": "find x \\;"}),
        ("submit picoCTF{x}", "ic_ctf", "submit", {"answer": "picoCTF{x}"}),
        ("submit it", "ic_bash", "execute", {"command": "submit it"}),
    ],
)
def test_the_tool_of_an_intercode_action(action, environment, name, arguments):
    call = call_of(action, environment)
    assert (call.name, call.arguments) == (name, arguments)


@pytest.mark.parametrize(
    ("observation", "valid", "status"),
    [
        ("{'output': '', 'error': ''}", None, "ok"),
        ("{'output': '', 'error': 'name x is not defined'}", None, "error"),
        ("{'output': broken", None, "ok"),
        ("Test case did not pass. Please try again.", None, "error"),
        ("Format your SQL command as follows", False, "error"),
        ("Error: this is a line of the file", True, "ok"),
        ("", True, "empty"),
        ("", False, "error"),
        (None, True, "missing"),
    ],
)
def test_what_an_intercode_observation_says_of_the_action(tmp_path, observation, valid, status):
    history = {"actions": ["x"], "observations": [observation], "rewards": [0.0], "valid_action": [valid]}
    episode = one(put(tmp_path / "x.json", {"0": run_of(turn_history=history)}), "intercode")
    assert episode.steps[0].result_status == status


def test_an_intercode_turn_without_an_action_shifts_no_result(tmp_path):
    history = {
        "actions": ["a", None, "c"],
        "observations": [None, "of b", "of c", "of nothing"],
        "rewards": [0, "x", 1],
    }
    readings = read(put(tmp_path / "x.json", {"0": run_of(turn_history=history)}), "intercode")
    (episode,) = episodes(readings)
    assert [(s.arguments, s.result, s.logged_reward) for s in episode.steps] == [
        ('{"command":"a"}', None, 0.0),
        ('{"command":"c"}', "of c", 1.0),
    ]
    assert [(r.rule, r.locator) for r in rejects(readings)] == [
        ("bad_action", "x.json#/0/turn_history/actions/1"),
        ("bad_action", "x.json#/0/turn_history/actions/3"),
    ]


def test_people_and_models_on_one_task_share_a_group(tmp_path):
    human = one(fixture("intercode_human"), "intercode_human")
    question = json.loads(fixture("intercode_human").read_text("utf-8"))["633"]
    entry = run_of(
        environment="ic_sql", dataset="./data/spider/dev_spider.json", task_id=633, query=question["query"]
    )
    model = one(put(tmp_path / "sql_gpt-4_10_turns.json", {"633": entry}), "intercode")
    assert human.group_id == model.group_id
    assert (human.source_kind, human.policy_id, human.model) == ("human_demo", "human", None)
    assert (model.source_kind, model.policy_id, model.model) == ("agent_log", "gpt-4", "gpt-4")


def test_an_intercode_person_is_graded_once_and_the_gold_query_is_hidden():
    episode = one(fixture("intercode_human"), "intercode_human")
    assert (episode.score, episode.success, episode.ending) == (1.0, True, "terminal")
    assert {s.logged_reward for s in episode.steps} == {None}
    assert (len(episode.steps), len(episode.messages)) == (8, 17)
    assert episode.reference is not None
    assert episode.reference.lower().startswith("select")
    assert "gold" not in json.loads(episode.metadata)
    typed = [s for s in episode.steps if s.arguments == '{"command":"submit;"}']
    assert [(s.action, s.result_status) for s in typed] == [("execute", "error")]


# --- documents that are one object of records ---------------------------------------------------------------------


def test_a_damaged_document_gives_its_whole_entries(tmp_path):
    document = {key: run_of(task_id=int(key)) for key in ("15", "2", "7")}
    for indent in (None, 2):
        text = json.dumps(document, indent=indent)
        readings = read(put(tmp_path / "torn.json", text[:-30]), "intercode")
        assert [e.native_id for e in episodes(readings)] == ["15", "2"]
        where = "torn.json#/7" if indent else "torn.json:1#/7"
        assert [(r.rule, r.locator) for r in rejects(readings)] == [("malformed_record", where)]
        broken = text.replace('"task_id": 2', '"task_id": 2 2')
        readings = read(put(tmp_path / "torn.json", broken), "intercode")
        assert [e.native_id for e in episodes(readings)] == ["15", "7"]
        assert counted(readings) == 3


def test_an_entry_that_is_no_run_is_set_aside_alone(tmp_path):
    document = {"a/b~c": run_of(), "x": [1], "y": {"environment": "ic_bash"}, "z": run_of(turn_history=[])}
    readings = read(put(tmp_path / "x.json", document), "intercode")
    assert [e.locator for e in episodes(readings)] == ["x.json#/a~1b~0c"]
    assert [r.locator for r in rejects(readings)] == ["x.json#/x", "x.json#/y", "x.json#/z"]
    assert read(put(tmp_path / "x.json", "{}"), "intercode") == [Skip(reason="empty_document")]
    assert [r.rule for r in read(put(tmp_path / "x.json", "7"), "intercode")] == ["not_a_conversation"]


def keyed_documents() -> dict[str, dict[str, Any]]:
    documents = {}
    for name in ("intercode", "intercode_human", "tooleval"):
        (entry,) = json.loads(fixture(name).read_text("utf-8")).values()
        documents[name] = dict.fromkeys(("1", "2", "3"), entry)
    documents["intercode"]["2"] = run_of()
    documents["tooleval"]["2"] = answer_of(tool("f", "{}", "ok"))
    return documents


@pytest.mark.parametrize("name", ["intercode", "intercode_human", "tooleval"])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_mutated_entries_never_raise_and_are_counted_once(tmp_path_factory, name, data):
    document = keyed_documents()[name]
    choose = data.draw(st.randoms(use_true_random=False))
    for _ in range(choose.randrange(1, 5)):
        key = choose.choice(sorted(document))
        document[key] = mutate(document[key], choose)
    path = put(tmp_path_factory.getbasetemp() / f"keyed-{name}.json", document)
    readings = read(path, name)
    assert counted(readings) == 3
    assert_sound(readings)


# --- Reflexion ------------------------------------------------------------------------------------------------------


def test_reflexion_trials():
    readings = read(fixture("reflexion_text"), "reflexion_text")
    found = episodes(readings)
    assert Counter((e.ending, e.success) for e in found) == {
        ("terminal", True): 4,
        ("terminal", False): 2,
        ("truncated", None): 2,
    }
    halted = [e for e in found if e.success is None]
    assert {e.ending_reason for e in halted} == {"halted: no answer within the step limit"}
    assert [json.loads(e.metadata) for e in found[::4]] == [
        {"section": "CORRECT", "trial": 1},
        {"section": "CORRECT", "trial": 2},
    ]
    first = found[0]
    assert [(s.action, s.result_status) for s in first.steps] == [
        ("Search", "ok"),
        ("Search", "ok"),
        ("Finish", "ok"),
    ]
    assert first.steps[0].arguments == '{"input":"Jonny Craig"}'
    assert first.messages[1].thought.startswith("I need to search Jonny Craig")
    assert first.messages[1].content is None
    assert first.reference == 'Jonny" Craig'
    for episode in found:
        assert not any("Correct answer" in (m.content or "") for m in episode.messages)
        assert episode.task == episode.messages[0].content


def test_a_solved_question_that_is_printed_again_is_the_same_run():
    found = episodes(read(fixture("reflexion_text"), "reflexion_text"))
    ids = [e.episode_id for e in found]
    solved = [e.episode_id for e in found if e.success]
    assert len(set(solved)) == 2
    failed = [e for e in found if not e.success]
    assert len({e.episode_id for e in failed}) == len(failed)
    assert len(set(ids)) == 6
    assert len({e.group_id for e in found}) == len({e.task for e in found})


TRIAL = """########################################
BEGIN TRIAL 2
Trial summary: Correct: 0, Incorrect: 1, Halted: 1
#######################################
------------- BEGIN INCORRECT AGENTS -----------

You have attempted to answer following question before and failed.
Reflections:
- Search for less.

Question: Who is it?
Thought 1: Look.
Action 1: Search[it]
Observation 1: A page
Thought 7: quoted on the page
Question: also quoted
- and a rule
----------
Action 2: Lookup[who]
Observation 2: The last page Searched was not found, so you cannot Lookup a keyword in it.
Thought 3: Enough.
Action 3: Finish[nobody]
Observation 3: Answer is INCORRECT
Correct answer: somebody

------------- BEGIN HALTED AGENTS --------------

Question: Where is it?
Thought 1: Look.
Action 1: Search[where]
Observation 1: A pl\xffce
Correct answer: here

Question: When is it?
Thought 1: Look.
Action 1:
Observation 1: Invalid Action.
Correct answer: now
"""


def test_a_reflexion_block_ends_where_its_numbers_end(tmp_path):
    path = tmp_path / "trials.txt"
    path.write_bytes(TRIAL.encode("latin-1").replace(b"\n", b"\r\n"))
    readings = read(path, "reflexion_text")
    who, when = episodes(readings)
    assert counted(readings) == 3
    assert [(r.level, r.rule, r.locator) for r in rejects(readings)] == [
        ("record", "malformed_record", "trials.txt:28"),
        ("part", "nameless_call", "trials.txt:36"),
    ]
    assert [m.role for m in who.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
        "tool",
    ]
    assert who.messages[0].content.endswith("- Search for less.")
    assert (
        who.steps[0].result
        == "A page\nThought 7: quoted on the page\nQuestion: also quoted\n- and a rule\n----------"
    )
    assert [s.result_status for s in who.steps] == ["ok", "error", "ok"]
    assert (who.reference, who.success, who.locator) == ("somebody", False, "trials.txt:11")
    assert [s.locator for s in who.steps] == ["trials.txt:13", "trials.txt:19", "trials.txt:22"]
    assert when.steps == []
    assert (when.ending, when.messages[-1].role) == ("truncated", "user")
    assert_sound(readings)


def test_a_transcript_that_is_cut_off_stops_where_it_stops(tmp_path):
    whole = TRIAL.replace("\xff", "a").encode()
    path = tmp_path / "trials.txt"
    path.write_bytes(whole)
    assert (
        episodes(read(path, "reflexion_text"))[1].ending_reason == "halted: no answer within the step limit"
    )
    path.write_bytes(whole[: whole.index(b"\nCorrect answer: here")] + "é".encode()[:1])
    readings = read(path, "reflexion_text")
    _, where = episodes(readings)
    assert not rejects(readings)
    assert (where.task, where.steps[0].result) == ("Where is it?", "A place")
    assert (where.ending, where.ending_reason) == ("truncated", "the log stops before an answer")


def test_reflexion_prog():
    found = episodes(read(fixture("reflexion_prog"), "reflexion_prog"))
    assert Counter((e.success, e.messages[1].thought is None) for e in found) == Counter(
        [(True, True), (True, False), (False, True), (False, False)]
    )
    first = found[0]
    assert (first.model, first.policy_id, first.task_id) == (
        "gpt-4",
        "gpt-4/reflexion",
        "mbpp_234_volume_cube",
    )
    (step,) = first.steps
    assert (step.action, step.result_status, step.result) == ("submit", "missing", None)
    assert json.loads(step.arguments)["code"].startswith("def volume_cube")
    assert (first.ending, first.ending_reason) == ("terminal", "the tests passed")
    assert not any("check(candidate)" in (m.content or "") for e in found for m in e.messages)


def test_reflexion_prog_rows_that_lack_something(tmp_path):
    rows = [
        {
            "prompt": "p",
            "solution": "s",
            "is_solved": None,
            "canonical_solution": "gold",
            "task_id": "HumanEval/0",
        },
        {"prompt": "p", "solution": None, "is_solved": False, "reflections": [1]},
        {"solution": "s", "is_solved": True},
    ]
    path = put(tmp_path / "x.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    first, second, third = read(path, "reflexion_prog")
    assert (first.ending, first.reference, first.native_id, first.model) == (
        "truncated",
        "gold",
        "HumanEval/0",
        None,
    )
    assert (second.steps, second.success) == ([], False)
    assert third.rule == "not_a_conversation"


# --- ReAct ----------------------------------------------------------------------------------------------------------


def test_a_langchain_log():
    answered, stopped = episodes(read(FIXTURES / "react_text" / "langchain.log", "react_text"))
    lookup, said = answered.steps
    assert (lookup.action, lookup.arguments) == ("search", '{"query":"population of Bergen"}')
    assert lookup.result == "Bergen has 291,940 inhabitants.\n(Source: a register.)"
    assert (said.kind, answered.messages[-1].content, answered.messages[-1].thought) == (
        "respond",
        "291,940",
        "That is the number.",
    )
    assert (answered.ending, answered.ending_reason, answered.task) == (
        "terminal",
        "the agent gave its answer",
        None,
    )
    assert [s.arguments for s in stopped.steps] == ['{"input":"12 * 12"}', '{"input":"144 * 144"}']
    assert [s.result_status for s in stopped.steps] == ["ok", "error"]
    assert (stopped.ending, stopped.ending_reason) == ("truncated", "stopped by an iteration or time limit")


def test_react_questions():
    finished, blob, cut = episodes(read(FIXTURES / "react_text" / "questions.txt", "react_text"))
    assert [s.action for s in finished.steps] == ["Search", "Search", "Finish"]
    assert finished.steps[0].result.endswith("Action 9: this line is part of the page\nIt has two floors.")
    assert [s.result_status for s in finished.steps] == ["ok", "error", "ok"]
    assert (finished.success, finished.score, finished.steps[-1].logged_reward) == (True, 1.0, None)
    assert [(s.action, s.arguments) for s in blob.steps] == [
        ("calculator", '{"expression":"2 + 2"}'),
        ("respond", "{}"),
    ]
    assert (cut.ending, cut.ending_reason) == ("truncated", "the log stops before an answer")
    assert (cut.steps[0].action, cut.steps[0].arguments) == ("lookup", '{"input":"who wrote it"}')


PROMPT = """Solve a question with interleaving Thought, Action, Observation steps. Here are some examples.
Question: an example
Thought 1: of how to think
Action 1: Search[example]
Observation 1: seen
(END OF EXAMPLES)

Question: the real one
Thought 1: think
Action 1: Search[real]
Observation 1: found
Thought 2: a thought alone
Observation 2: You must act.
Thought 3: then
Action 3: Finish[done]
Elapsed: 3 s
"""


def test_examples_in_a_prompt_are_no_episodes(tmp_path):
    readings = read(put(tmp_path / "run.log", PROMPT), "react_text")
    (episode,) = episodes(readings)
    assert [(r.level, r.rule, r.excerpt) for r in rejects(readings)] == [
        ("part", "text_after_action", "Elapsed: 3 s")
    ]
    assert episode.messages[0].role == "system"
    assert episode.messages[0].content.endswith("(END OF EXAMPLES)")
    assert episode.task == "the real one"
    assert [s.action for s in episode.steps] == ["Search", "Finish"]
    assert [m.role for m in episode.messages[4:]] == ["assistant", "user", "assistant"]
    assert (episode.messages[4].thought, episode.messages[5].content) == ("a thought alone", "You must act.")
    assert episode.prompt_version is not None


@pytest.mark.parametrize(
    ("text", "given", "name", "arguments"),
    [
        ("Search[a [b] c]", None, "Search", {"input": "a [b] c"}),
        ("Search[]", None, "Search", None),
        ("search(a, b)", None, "search", {"input": "a, b"}),
        ("go to desk 1", None, "go", {"input": "to desk 1"}),
        ("look", None, "look", None),
        ("search", "plain text", "search", {"input": "plain text"}),
        ("search", '{"q": 1}', "search", '{"q": 1}'),
        ("search", '```json\n{"q": 1}\n```', "search", '{"q": 1}'),
        ("search", '{"q": 1', "search", '{"q": 1'),
        ('{"action": "f", "action_input": {"a": 1}}', None, "f", {"a": 1}),
        ('```\n{"action": "f", "action_input": "x"}\n```', None, "f", {"input": "x"}),
        ('{"action": "f"}', None, "f", None),
    ],
)
def test_the_call_of_a_react_action(text, given, name, arguments):
    call = action_of(text, given)
    assert call is not None
    assert (call.name, call.arguments) == (name, arguments)


@pytest.mark.parametrize("text", ["", '{"action": 7}', '{"action": ', "   "])
def test_an_action_without_a_name_is_no_call(text):
    assert action_of(text, None) is None


def test_a_final_answer_inside_a_blob_is_said(tmp_path):
    text = (
        'Thought: t\nAction:\n```\n{"action": "Final Answer", "action_input": "42"}\n```\nObservation: none\n'
    )
    readings = read(put(tmp_path / "x.log", text), "react_text")
    (episode,) = episodes(readings)
    assert [(s.kind, s.action) for s in episode.steps] == [("respond", "respond")]
    assert (episode.messages[0].content, episode.messages[0].thought, episode.ending) == (
        "42",
        "t",
        "terminal",
    )


def test_text_around_the_questions_is_named(tmp_path):
    text = "Question: q\nThought: t\nFinal Answer: a\n> Finished chain.\nTotal: 1\n"
    readings = read(put(tmp_path / "x.log", text), "react_text")
    assert [type(item).__name__ for item in readings] == ["Episode", "Skip"]
    assert [r.rule for r in read(put(tmp_path / "x.log", "just text\n"), "react_text")] == [
        "not_a_conversation"
    ]


@pytest.mark.parametrize("name", ["react_text", "reflexion_text"])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_shuffled_transcripts_never_raise(tmp_path_factory, name, data):
    lines = (PROMPT + TRIAL + (FIXTURES / "react_text" / "langchain.log").read_text("utf-8")).split("\n")
    drawn = data.draw(st.lists(st.sampled_from(lines), max_size=25))
    path = put(tmp_path_factory.getbasetemp() / f"{name}.log", "\n".join(drawn))
    readings = read(path, name)
    assert_sound(readings)
    assert readings == read(path, name)
    assert bool(readings) or not any(line.strip() for line in drawn) or counted(readings) == 0


# --- ToolBench ------------------------------------------------------------------------------------------------------


def test_the_last_chain_of_a_toolbench_answer_is_its_episode():
    path = fixture("toolbench_dfs")
    episode = one(path, "toolbench_dfs", "G1_answer/10_ChatGPT_DFS_woFilter_w2.json")
    assert [m.role for m in episode.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert [s.action for s in episode.steps] == [
        "transitaires_for_transitaires",
        "transitaire_for_transitaires",
        "Finish",
    ]
    assert episode.steps[-1].result_status == "missing"
    assert (episode.ending, episode.ending_reason, episode.success) == (
        "terminal",
        "Finish: give_answer",
        True,
    )
    assert (episode.model, episode.policy_id) == ("ChatGPT", "ChatGPT_DFS_woFilter_w2")
    assert episode.tools is not None
    assert "Finish" in episode.tools
    assert episode.steps[0].locator.split("#")[1].startswith("/answer_generation/train_messages/2/2/")


def node(kind: str, text: str, *children: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"node_type": kind, "description": text, "children": list(children), **more}


FAILED = {
    "win": False,
    "tree": {
        "size": 9,
        "max_length": 4,
        "tree": node(
            "Action Input",
            "",
            node("Action", "f", node("Action Input", '{"x": 0}', observation="no", observation_code=0)),
            node(
                "Thought",
                "try again",
                node(
                    "Action",
                    "f",
                    node(
                        "Action Input",
                        '{"x": 1}',
                        node("Thought", "hm", node("Thought", "one more", node("Action", "g"))),
                        observation='{"error": "Timeout error", "response": ""}',
                    ),
                ),
            ),
        ),
    },
    "answer_generation": {
        "query": "do it",
        "function": [{"name": "f"}, {"name": "Finish"}],
        "finish_type": "give_up",
    },
}


def test_a_failed_search_is_told_by_the_path_it_took_last(tmp_path):
    path = put(tmp_path / "7_ChatGPT_DFS_woFilter_w2.json", FAILED)
    assert [c.connector.name for c in detect(path)] == ["toolbench_dfs"]
    readings = read(path, "toolbench_dfs")
    (episode,) = episodes(readings)
    assert [(m.role, m.content) for m in episode.messages] == [
        ("user", "do it"),
        ("assistant", "try again"),
        ("tool", '{"error": "Timeout error", "response": ""}'),
        ("assistant", "hm"),
        ("assistant", "one more"),
    ]
    assert [(s.action, s.arguments, s.result_status) for s in episode.steps] == [
        ("f", '{"x":1}', "error"),
        ("respond", "{}", None),
        ("respond", "{}", None),
    ]
    assert [(r.level, r.rule) for r in rejects(readings)] == [("part", "cut_action")]
    assert (episode.ending, episode.success, episode.tools) == ("truncated", False, ["Finish", "f"])
    assert {"tree_calls": 3, "tree_leaves": 2}.items() <= json.loads(episode.metadata).items()


@pytest.mark.parametrize(
    "change",
    [
        {"tree": None},
        {"tree": {"tree": node("Action Input", "")}},
        {"answer_generation": None},
        {"answer_generation": {"train_messages": ["x"]}},
    ],
)
def test_a_search_of_which_nothing_is_left_is_set_aside(tmp_path, change):
    (item,) = read(put(tmp_path / "x.json", FAILED | change), "toolbench_dfs")
    assert item.rule == "not_a_conversation"


def test_giving_up_is_an_end(tmp_path):
    call = {"name": "Finish", "arguments": '{\n "return_type": "give_up_and_restart"\n}'}
    chain = [{"role": "user", "content": "q"}, {"role": "assistant", "content": None, "function_call": call}]
    answer = {"train_messages": [chain[:1], chain], "query": "q"}
    episode = one(put(tmp_path / "x.json", FAILED | {"answer_generation": answer}), "toolbench_dfs")
    assert (episode.ending, episode.ending_reason) == ("terminal", "Finish: give_up_and_restart")
    assert (episode.success, len(episode.steps), episode.policy_id) == (False, 1, None)


def finish() -> dict[str, Any]:
    return {"role": "assistant", "content": None, "function_call": {"name": "Finish", "arguments": "{}"}}


def test_only_finish_reaches_the_user_of_toolbench(tmp_path):
    call = {"name": "f", "arguments": "{}"}
    chain = [
        {"role": "user", "content": "\ndo it\nBegin!\n"},
        {"role": "assistant", "content": "First I look."},
        {"role": "assistant", "content": None, "function_call": call},
        {"role": "function", "name": "f", "content": "1"},
        {"role": "assistant", "content": "It is 1."},
        {"role": "assistant", "content": "Done."},
        finish(),
    ]
    answer = {"train_messages": [chain], "query": "do it"}
    episode = one(put(tmp_path / "x.json", FAILED | {"answer_generation": answer}), "toolbench_dfs")
    assert [m.content for m in episode.messages] == [m["content"] for m in chain]
    assert [(s.action, s.position) for s in episode.steps] == [("respond", 1), ("f", 2), ("Finish", 6)]
    assert (episode.task, episode.messages[0].content) == ("do it", "\ndo it\nBegin!\n")


@pytest.mark.parametrize(
    ("after", "actions"),
    [
        ([], ["respond"]),
        ([{"role": "user", "content": "Try again."}, finish()], ["respond", "Finish"]),
        (["no message", finish()], ["respond", "Finish"]),
    ],
)
def test_a_text_that_finish_does_not_follow_is_a_decision(tmp_path, after, actions):
    chain = [{"role": "user", "content": "do it"}, {"role": "assistant", "content": "It is 1."}, *after]
    answer = {"train_messages": [chain], "query": "do it"}
    path = put(tmp_path / "x.json", FAILED | {"answer_generation": answer})
    (episode,) = episodes(read(path, "toolbench_dfs"))
    assert [s.action for s in episode.steps] == actions


# --- ToolEval -------------------------------------------------------------------------------------------------------


def tool(name: str, arguments: str, response: Any, cut: int | None = None) -> dict[str, Any]:
    return {
        "role": "tool",
        "message": repr({"name": name, "arguments": arguments, "response": response})[:cut],
    }


def answer_of(
    *nodes: dict[str, Any], final: str = "", query: str = "What is it? Tell me all."
) -> dict[str, Any]:
    chain: list[Any] = []
    for one_node in reversed(
        [{"role": "system", "message": ""}, {"role": "user", "message": query[:12]}, *nodes]
    ):
        chain = [{**one_node, "next": chain}]
    return {
        "query": query,
        "available_tools": [{"name": "f"}, {"name": "Finish"}],
        "answer": {"method": "chatgpt_CoT", "total_steps": 9, "final_answer": final, "answer_details": chain},
    }


FINISH = '{"return_type": "give_answer", "final_answer": "It\'s a \\"cat\\"."}'


def test_a_tooleval_node_is_a_call_and_its_result(tmp_path):
    nodes = (
        tool("f", '{"x": "é\\"\\n"}', '{"error": "", "response": "it\'s"}'),
        {"role": "assistant", "message": "now g"},
        tool("g", "{}", {"error": "boom"}),
        {"role": "assistant", "message": "let me think"},
        {"role": "assistant", "message": "once more"},
        tool("f", "", ""),
        tool("Finish", FINISH, "", cut=50),
    )
    path = put(tmp_path / "x.json", {"12": answer_of(*nodes, final=FINISH)})
    episode = one(path, "tooleval")
    assert [m.role for m in episode.messages] == (
        ["user"] + ["assistant", "tool"] * 2 + ["assistant"] * 2 + ["tool", "assistant"]
    )
    assert [(s.action, s.action_valid) for s in episode.steps] == [
        ("f", True),
        ("g", False),
        ("respond", True),
        ("f", True),
        ("Finish", True),
    ]
    first, second, _, empty, finish = episode.steps
    assert json.loads(first.arguments) == {"x": 'é"\n'}
    assert first.result == '{"error": "", "response": "it\'s"}'
    assert (second.result, second.result_status) == ('{"error":"boom"}', "error")
    assert episode.messages[3].content == "now g"
    assert (empty.result, empty.result_status) == ("", "empty")
    assert (finish.arguments_status, json.loads(finish.arguments)["final_answer"]) == ("ok", 'It\'s a "cat".')
    assert (episode.ending, episode.ending_reason) == ("terminal", "Finish: give_answer")
    assert episode.task == "What is it? Tell me all."
    assert (episode.policy_id, episode.model, episode.success, episode.task_id) == (
        "chatgpt_CoT",
        "chatgpt",
        None,
        "12",
    )
    assert json.loads(episode.metadata)["cut_messages"] == 1


@pytest.mark.parametrize(
    ("cut", "arguments", "status", "result"),
    [
        (28, "{'name': 'f', 'arguments': '", "invalid", None),
        (31, '{"x', "invalid", None),
        (37, '{"x": "a', "invalid", None),
        (42, '{"x": "a\\\\b"', "invalid", None),
        (44, '{"x":"a\\\\b"}', "ok", None),
        (56, '{"x":"a\\\\b"}', "ok", None),
        (61, '{"x":"a\\\\b"}', "ok", "li"),
        (64, '{"x":"a\\\\b"}', "ok", "line"),
        (65, '{"x":"a\\\\b"}', "ok", "line\n"),
    ],
)
def test_what_can_be_seen_of_a_node_that_is_cut_off(tmp_path, cut, arguments, status, result):
    node_ = tool("f", '{"x": "a\\\\b"}', "line\n2", cut=cut)
    episode = one(put(tmp_path / "x.json", {"1": answer_of(node_)}), "tooleval")
    (step,) = episode.steps
    assert (step.action, step.arguments, step.arguments_status, step.result) == (
        "f",
        arguments,
        status,
        result,
    )
    assert (episode.ending, episode.ending_reason) == ("truncated", "stopped before the agent called Finish")


def test_tooleval_nodes_that_cannot_be_read_are_set_aside(tmp_path):
    entry = answer_of(
        {"role": "tool", "message": "__import__('os').system('true')"},
        {"role": "tool", "message": {"name": "f", "arguments": {"x": 1}, "response": "ok"}},
        {"role": "tool", "message": None},
        {"role": "critic", "message": "no"},
    )
    root = entry["answer"]["answer_details"]
    root[0]["next"].insert(0, {"role": "user", "message": "another branch", "next": []})
    readings = read(put(tmp_path / "x.json", {"1": entry}), "tooleval")
    (episode,) = episodes(readings)
    assert [(s.action, s.arguments, s.result) for s in episode.steps] == [("f", '{"x":1}', "ok")]
    assert Counter(r.rule for r in rejects(readings)) == {"bad_call": 2, "unknown_role": 1, "other_branch": 1}


# --- Python literals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "f()",
        "{1: 2}",
        "1j",
        "b'x'",
        "{1, 2}",
        "x",
        "",
        "[" * 60 + "]" * 60,
        "'" + "x" * 1_000_000 + "'",
        "(1).__class__",
    ],
)
def test_what_is_no_plain_literal_is_refused(text):
    with pytest.raises(NotLiteral):
        literal(text)


def test_literals_are_data():
    assert literal("{'a': [1, 2.5, True, None, ('x',)], 'b': '\\ud800\\_'}") == {
        "a": [1, 2.5, True, None, ["x"]],
        "b": "\ufffd\\_",
    }
    assert literal("'" + "[" * 500 + "'") == "[" * 500
    assert fields("{'a': 1, 'b': {'c': 2}, 'd': 'x").cut == "b"
    assert fields("{'a': 'x', ").cut == ""
    assert fields("{'a': '\\u00e").values == {"a": ""}
    for text in ("{", "x", "[1]", "{'a"):
        with pytest.raises(NotLiteral):
            fields(text)


@settings(max_examples=200, deadline=None)
@given(
    st.fixed_dictionaries({"name": st.text(), "arguments": st.text(), "response": st.text()}),
    st.integers(0, 400),
)
def test_the_visible_part_of_a_cut_repr_is_a_prefix_of_the_whole(value, cut):
    value = {key: text.encode("utf-8", "replace").decode() for key, text in value.items()}
    try:
        found = fields(repr(value)[:cut])
    except NotLiteral:
        return
    for key, seen in found.values.items():
        assert value[key].startswith(seen) if key == found.cut else seen == value[key]


# --- telling formats apart ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "claimed"),
    [
        (PROMPT, ["react_text"]),
        (TRIAL, ["reflexion_text"]),
        ("# ReAct\n\nThought: x\nAction: y\nObservation: z\n", []),
        ("Question: q\nAnswer: a\n", []),
        ("Action: s3:GetObject\nEffect: Allow\n", []),
        ("Action: a\nObservation: o\n", []),
        ({"0": run_of()}, ["intercode"]),
        ({"0": {"environment": "x", "query": "q"}}, []),
        ({"environment": "x", "turn_history": {}}, []),
        ({"1": answer_of()}, ["tooleval"]),
        ({"query": "q", "available_tools": [], "answer": "a"}, []),
        (FAILED, ["toolbench_dfs"]),
        ({"win": True, "tree": {"leaves": 3}}, []),
        ({"prompt": "p", "solution": "s", "is_solved": True}, ["reflexion_prog"]),
        ({"prompt": "p", "solution": "s"}, []),
    ],
)
def test_look_alikes_are_told_apart(tmp_path, content, claimed):
    ours = {
        "intercode",
        "intercode_human",
        "react_text",
        "reflexion_prog",
        "reflexion_text",
        "toolbench_dfs",
        "tooleval",
    }
    path = put(tmp_path / "x.data", content)
    assert [claim.connector.name for claim in detect(path) if claim.connector.name in ours] == claimed


# --- counts on the real files ---------------------------------------------------------------------------------------

FORMATS = ("intercode", "intercode_human", "reflexion_prog", "reflexion_text", "toolbench_dfs", "tooleval")
DIFFERENCES = {
    (
        "intercode",
        "messages",
    ): "a submission that the harness made at the step limit is no decision of the agent",
    (
        "intercode",
        "tool_calls",
    ): "a submission that the harness made at the step limit is no decision of the agent",
    (
        "intercode",
        "tool_results",
    ): "a submission that the harness made at the step limit is no decision of the agent",
    ("reflexion_text", "messages"): "a thought is part of the message that acts on it",
    (
        "tooleval",
        "messages",
    ): "empty system messages are none, a node is a call and, where it can be seen, a result",
    (
        "tooleval",
        "tool_results",
    ): "node texts are cut off after 100 characters; a result that cannot be seen is missing",
}
"""Why a count differs from the independent one; docs/formats/research.md has the same words."""

HAVE_LOGS = (LOGS / "expected_counts.json").is_file()
needs_logs = pytest.mark.skipif(not HAVE_LOGS, reason="the shared logs are not here")


def real_files() -> list[Path]:
    return [path for name in FORMATS if HAVE_LOGS for path in sorted((LOGS / name).iterdir())]


def counts_of(path: Path) -> Counter[str]:
    readings = read(path, path.parent.name)
    assert not rejects(readings)
    assert_sound(readings)
    return counts_in(episodes(readings))


def adjust(counts: Counter[str], path: Path) -> None:
    """Change the independent counts by what the documented differences come to, counted on the raw file."""
    if path.parent.name == "intercode":
        thoughts = [
            t
            for e in json.loads(path.read_text("utf-8")).values()
            for t in e["turn_history"].get("thoughts", [])
        ]
        forced = sum(thought.startswith("EXCEEDED MAX TURNS") for thought in thoughts)
        counts["messages"] -= 2 * forced
        counts["tool_calls"] -= forced
        counts["tool_results"] -= forced
    elif path.parent.name == "reflexion_text":
        counts["messages"] -= len(re.findall(r"(?m)^Thought \d+:", path.read_text("utf-8")))
    elif path.parent.name == "tooleval":
        all_nodes = [node for entry in json.loads(path.read_text("utf-8")).values() for node in nodes(entry)]
        visible = sum(bool(re.search(r"'response': ['\"].", node["message"])) for node in all_nodes)
        before = sum(node["role"] in ("system", "assistant") for node in all_nodes)
        counts["messages"] += visible - before
        counts["tool_results"] = visible


def nodes(entry: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    branches = entry["answer"]["answer_details"]
    while branches:
        found.append(branches[0])
        branches = branches[0]["next"]
    return found


@pytest.mark.parametrize("path", real_files(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_counts_agree_with_the_independent_ones(path):
    expected = independent(path)
    adjust(expected, path)
    assert {k: v for k, v in counts_of(path).items() if v} == {k: v for k, v in expected.items() if v}


@needs_logs
@pytest.mark.parametrize("name", FORMATS)
def test_the_differences_are_those_of_the_documentation(name):
    counted = ((independent(path), counts_of(path)) for path in real_files() if path.parent.name == name)
    totals_as_told("formats/research.md", name, counted, DIFFERENCES)


@needs_logs
def test_solved_questions_of_the_real_trials_are_counted_once():
    found = episodes(read(real_files()[FORMATS_AT["reflexion_text"]], "reflexion_text"))
    assert (len(found), len({e.episode_id for e in found}), len({e.group_id for e in found})) == (
        512,
        364,
        100,
    )
    assert sum(e.success is True for e in {e.episode_id: e for e in found}.values()) == 34


@needs_logs
def test_people_solved_tasks_that_a_model_ran_too():
    people = episodes(read(LOGS / "intercode_human" / "sql_human_10_turns.json", "intercode_human"))
    model = episodes(read(LOGS / "intercode" / "sql_gpt-4_10_turns.json", "intercode"))
    assert {e.group_id for e in people} <= {e.group_id for e in model}


FORMATS_AT = {path.parent.name: index for index, path in enumerate(real_files())}
