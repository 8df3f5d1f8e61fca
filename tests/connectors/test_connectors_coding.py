"""Connectors of coding agents: OpenHands, mini-SWE-agent, ADP (raw and standardised) and ATIF."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from logforge.connectors.detection import detect, get
from logforge.connectors.episodes.identity import episode_id, instance_task, issue_in, run_task, task_group
from logforge.connectors.episodes.text_calls import execute_calls, fenced, function_calls
from logforge.connectors.episodes.unsupported_shapes import unsupported
from logforge.connectors.records.base import Source, look
from logforge.schemas.episode import Episode, Reject
from support.places import DATA
from support.real_counts import LOGS, counts_in, independent, totals_as_told

FIXTURES = DATA / "connectors"
PRAISE = "Task completed successfully."
FORMATS = ("adp_raw", "adp_std", "mini_swe_agent", "openhands_events", "openhands_output")
NAMES = (*FORMATS, "atif")


def read(path: Path, name: str, label: str = "log") -> list[Any]:
    return list(get(name).read(Source(path, label)))


def fixture(name: str, file: str) -> list[Any]:
    return read(FIXTURES / name / file, name, file)


def episodes(readings: list[Any]) -> list[Episode]:
    return [item for item in readings if isinstance(item, Episode)]


def rejects(readings: list[Any]) -> list[Reject]:
    return [item for item in readings if isinstance(item, Reject)]


def calls(episode: Episode) -> list[Any]:
    return [step for step in episode.steps if step.kind == "tool"]


def roles(episode: Episode) -> str:
    return "".join(message.role[0] for message in episode.messages)


def written(tmp_path: Path, value: Any) -> Path:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(value), "utf-8")
    return path


def claims(path: Path) -> list[str]:
    head = look(path)
    return [name for name in (*NAMES, "openai_messages", "swe_agent_traj") if get(name).sniff(head) > 0]


# --- OpenHands ----------------------------------------------------------------------------------------------------


def test_openhands_events_give_the_models_own_calls():
    (episode,) = episodes(fixture("openhands_events", "wrong_initial_state.json"))
    assert [s.action for s in episode.steps] == [
        "str_replace_editor",
        "execute_bash",
        "str_replace_editor",
        "finish",
    ]
    first = episode.steps[0]
    assert json.loads(first.arguments) == {"command": "view", "path": "/workspace"}
    assert first.result is not None
    assert first.result.startswith("Here's the files")
    assert first.latency_s == pytest.approx(0.035473)
    assert episode.messages[1].content.startswith("I'll help you rename the file.")
    assert (episode.messages[1].tokens_in, episode.messages[1].tokens_out) == (3475, 95)
    assert episode.steps[-1].result is None
    assert (episode.ending, episode.ending_reason) == ("terminal", "the agent finished")
    assert (episode.success, episode.tools, episode.records) == (None, None, 8)
    assert episode.model == "claude-3-5-sonnet-20241022"


def test_openhands_calls_of_one_response_are_one_turn():
    main, _ = episodes(fixture("openhands_events", "delegate.json"))
    one, two = main.steps[:2]
    assert (one.parallel_group, two.parallel_group, one.position, two.position) == (0, 0, 2, 2)
    assert [s.result for s in (one, two)] == ["src\n", "cat: no.txt: No such file or directory"]
    assert [s.result_status for s in (one, two)] == ["ok", "error"]
    assert [s.latency_s for s in (one, two)] == [1.0, 2.0]
    turn = main.messages[2]
    assert (turn.content, turn.thought) == ("Both at once.", "two are quicker")
    assert sum(m.tokens_out or 0 for m in main.messages) == 40


def test_an_openhands_delegate_is_an_episode_of_its_own():
    main, child = episodes(fixture("openhands_events", "delegate.json"))
    assert (main.records, child.records) == (18, 4)
    assert child.parent_episode_id == main.episode_id
    assert child.task == "find the licence"
    assert [(s.action, s.result) for s in child.steps] == [("browser", "MIT licence"), ("finish", None)]
    assert (child.ending, main.parent_episode_id) == ("terminal", None)
    assert (main.steps[2].action, main.steps[2].result) == ("delegate_to_browser", "It is MIT.")


@pytest.mark.parametrize("name", ["openhands_events/sdk.jsonl", "openhands_output/sdk_output.jsonl"])
def test_openhands_sdk_events_are_a_run(name):
    readings = fixture(*name.split("/"))
    (episode,) = episodes(readings)
    assert [m.role[0] for m in episode.messages] == list("suattatatat")
    assert (episode.messages[2].content, episode.messages[2].thought) == ("I look around.", "First look")
    assert [(s.action, s.result_status, s.parallel_group) for s in episode.steps] == [
        ("terminal", "ok", 0),
        ("file_editor", "error", 0),
        ("terminal", "refused", None),
        ("terminal", "error", None),
        ("finish", "ok", None),
    ]
    assert episode.steps[1].arguments == '{"command":"view","path":"/a"}'
    assert episode.tools == ["file_editor", "finish", "terminal"]
    assert (episode.ending, episode.ending_reason) == ("terminal", "execution status: finished")
    kinds = [event["kind"] for event in json.loads(episode.metadata)["other_events"]]
    assert kinds == ["ConversationStateUpdateEvent", "Condensation", "ConversationStateUpdateEvent"]
    if name.startswith("openhands_output"):
        assert (episode.model, episode.cost_usd, episode.task_id) == ("m-1", 0.25, "o__r-1")
        assert [r.rule for r in readings if isinstance(r, Reject)] == ["bad_event"]
    else:
        assert episode.records == 15


def sdk(kind, source="environment", **more):
    return {"id": "e", "timestamp": "2026-02-03T10:00:00.000001", "source": source, "kind": kind, **more}


@pytest.mark.parametrize(
    ("events", "ending", "reason"),
    [
        ([], "truncated", "the log stops before the agent finishes"),
        ([sdk("MessageEvent", "agent", llm_message={"content": "Hi"})], "terminal", "end of conversation"),
        ([sdk("PauseEvent", "user")], "truncated", "the user paused it"),
        ([sdk("ConversationErrorEvent", code="LLMError")], "truncated", "error: LLMError"),
        (
            [sdk("ConversationStateUpdateEvent", key="execution_status", value="stuck")],
            "truncated",
            "execution status: stuck",
        ),
        (
            [sdk("ConversationStateUpdateEvent", key="full_state", value={"execution_status": "finished"})],
            "terminal",
            "execution status: finished",
        ),
        (
            [sdk("ActionEvent", "agent", tool_name="x", tool_call_id="c", action={"kind": "X", "a": 1})],
            "truncated",
            "last call is unanswered",
        ),
    ],
)
def test_openhands_sdk_endings(tmp_path, events, ending, reason):
    begin = [sdk("MessageEvent", "user", llm_message={"content": "Go"})]
    (episode,) = episodes(read(written(tmp_path, begin + events), "openhands_events"))
    assert (episode.ending, episode.ending_reason) == (ending, reason)


def test_one_event_of_the_openhands_sdk_alone_is_refused_in_words(tmp_path):
    path = tmp_path / "event-00001-0198c0de.json"
    path.write_text(json.dumps(sdk("MessageEvent", "user", llm_message={"content": "Go"})))
    assert detect(path) == []
    assert "one event of an OpenHands run" in (unsupported(look(path)) or "")


def test_mini_swe_agent_reads_objects_of_the_responses_api():
    (episode,) = episodes(fixture("mini_swe_agent", "responses.traj.json"))
    assert [m.role[0] for m in episode.messages] == list("suattua")
    turn = episode.messages[2]
    assert (turn.content, turn.thought, turn.model) == ("I look.", "Look first", "gpt-x")
    assert (turn.tokens_in, turn.tokens_out) == (10, 1)
    assert [(s.action, s.result_status) for s in episode.steps] == [
        ("bash", "ok"),
        ("bash", "error"),
        ("submit", "missing"),
    ]
    assert (episode.ending, episode.ending_reason) == ("terminal", "exit status: Submitted")


def test_openhands_events_that_decide_nothing_are_kept_apart():
    main, _ = episodes(fixture("openhands_events", "delegate.json"))
    assert main.tools == ["delegate_to_browser", "execute_bash", "finish"]
    assert [m.content for m in main.messages if m.role == "user"] == [
        "Tell me the licence.",
        "Parameter 'command' is missing.",
        "git status",
        "clean",
    ]
    kinds = [e.get("action", e.get("observation")) for e in json.loads(main.metadata)["other_events"]]
    assert kinds == ["recall", "recall"]
    assert [s.action for s in main.steps] == ["execute_bash"] * 2 + ["delegate_to_browser"] + [
        "execute_bash"
    ] * 2 + ["clarify"]


def test_openhands_refused_and_still_running_commands():
    main, _ = episodes(fixture("openhands_events", "delegate.json"))
    refused, slow = main.steps[3:5]
    assert (refused.result_status, slow.result_status) == ("refused", "timeout")
    assert (main.ending, main.ending_reason) == ("truncated", "the agent waits for the user")


def test_openhands_outputs_verdicts_and_endings():
    found = [e for e in episodes(fixture("openhands_output", "outputs.jsonl")) if e.parent_episode_id is None]
    told = [(e.task_id, e.ending, e.success) for e in found]
    assert told == [
        ("repo__name-1", "terminal", True),
        ("repo__name-2", "truncated", None),
        ("o/r#7", "terminal", None),
        ("o/r#8", "terminal", False),
        ("repo__name-3", "truncated", None),
    ]
    assert found[1].ending_reason.startswith("error: RuntimeError: Agent reached maximum iteration")
    assert (found[0].reference, found[0].model, found[0].temperature) == (
        '"the gold patch"',
        "vendor/model-a",
        0.2,
    )
    assert "the gold patch" not in " ".join(m.content or "" for m in found[0].messages)


def test_openhands_call_ids_that_repeat_go_to_the_nearest_open_call():
    first = episodes(fixture("openhands_output", "outputs.jsonl"))[0]
    assert [(s.tool_call_id, s.action, s.result) for s in first.steps] == [
        ("toolu_01", "execute_bash", ""),
        ("toolu_01", "finish", None),
    ]


def test_old_openhands_rows_without_ids_are_paired_by_order():
    old = episodes(fixture("openhands_output", "outputs.jsonl"))[2]
    assert roles(old) == "uatataa"
    assert [(s.action, s.result, s.result_status) for s in old.steps] == [
        ("run", "3:teh", "ok"),
        ("run_ipython", "Traceback (most recent call last):\nNameError", "error"),
        ("clarify", None, None),
        ("finish", None, "missing"),
    ]
    assert (old.messages[1].content, old.messages[1].thought) == (None, "Where is it?")
    assert json.loads(old.steps[0].arguments) == {"command": "grep -n teh README"}


def test_a_delegate_in_an_openhands_row_counts_no_record_of_its_own():
    readings = fixture("openhands_output", "outputs.jsonl")
    (child,) = [e for e in episodes(readings) if e.parent_episode_id is not None]
    assert (child.records, child.ending) == (0, "terminal")
    assert [(r.level, r.rule) for r in rejects(readings)] == [
        ("part", "bad_event"),
        ("record", "not_a_conversation"),
    ]


@pytest.mark.parametrize(
    ("more", "ending", "reason"),
    [
        ([], "truncated", "last call is unanswered"),
        (
            [{"observation": "agent_state_changed", "extras": {"agent_state": "stopped"}}],
            "truncated",
            "stopped",
        ),
        (
            [{"observation": "agent_state_changed", "extras": {"agent_state": "finished"}}],
            "terminal",
            "finished",
        ),
        ([{"observation": "error", "content": "Agent reached maximum iteration."}], "truncated", "maximum"),
        ([{"action": "reject", "args": {}, "source": "agent"}], "terminal", "rejected the task"),
        ([{"observation": "run", "content": "x"}], "truncated", "stops before the agent finishes"),
    ],
)
def test_openhands_endings(tmp_path, more, ending, reason):
    events = [
        {
            "action": "message",
            "source": "user",
            "timestamp": "2025-01-01T00:00:00",
            "args": {"content": "Go"},
        },
        {"action": "run", "source": "agent", "args": {"command": "ls"}},
    ]
    (episode,) = episodes(read(written(tmp_path, events + more), "openhands_events"))
    assert episode.ending == ending
    assert reason in episode.ending_reason


def test_a_torn_openhands_trajectory_keeps_its_events(tmp_path):
    text = (FIXTURES / "openhands_events" / "wrong_initial_state.json").read_text("utf-8")
    path = tmp_path / "torn.json"
    path.write_text(text[:-30], "utf-8")
    readings = read(path, "openhands_events")
    (episode,) = episodes(readings)
    assert (episode.records, len(episode.steps)) == (7, 3)
    assert (episode.ending, episode.ending_reason) == ("truncated", "error: the log is cut off")
    assert [r.rule for r in rejects(readings)] == ["malformed_record"]


# --- mini-SWE-agent -----------------------------------------------------------------------------------------------


def test_mini_swe_agent_commands_in_fences():
    (episode,) = episodes(fixture("mini_swe_agent", "github_issue.traj.json"))
    assert [s.action for s in episode.steps] == ["bash"] * 9 + ["submit"]
    assert Counter(s.result_status for s in episode.steps) == {"ok": 8, "error": 2}
    assert episode.steps[0].error_class == "not_found"
    assert episode.steps[-1].result.startswith("diff --git")
    assert (episode.ending, episode.success, episode.records) == ("terminal", None, 22)
    assert episode.task.startswith("Please solve this issue")


def test_mini_swe_agent_tool_calls_and_limits():
    (episode,) = episodes(fixture("mini_swe_agent", "toolcalls.traj.json"))
    first, second, said = episode.steps
    assert [(s.action, s.tool_call_id, s.parallel_group) for s in (first, second)] == [
        ("bash", "c1", 0),
        ("bash", "c2", 0),
    ]
    assert (first.result_status, second.result_status, said.action) == ("ok", "error", "respond")
    assert (episode.messages[2].thought, episode.messages[2].tokens_in) == ("two looks", 50)
    assert (episode.ending, episode.ending_reason) == ("truncated", "exit status: LimitsExceeded")
    assert (episode.model, episode.temperature, episode.task_id) == ("vendor/model-b", 0.0, "repo__name-1")
    assert roles(episode) == "suattau"
    assert json.loads(episode.metadata)["exit"][0]["role"] == "exit"


def test_mini_swe_agent_refused_turns_and_timeouts():
    (episode,) = episodes(fixture("mini_swe_agent", "refused.traj.json"))
    assert roles(episode) == "suauatat"
    assert [(s.action, s.result_status) for s in episode.steps] == [("bash", "timeout"), ("submit", "ok")]
    assert json.loads(episode.steps[0].arguments) == {"command": "cat <<'EOF' > a.md\n# A\nEOF"}
    assert episode.ending == "terminal"


@pytest.mark.parametrize(
    ("command", "action", "ending"),
    [
        ("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", "submit", "terminal"),
        ("git add -A &&\necho 'MINI_SWE_AGENT_FINAL_OUTPUT'", "submit", "terminal"),
        ("grep -r COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT .", "bash", "truncated"),
        ("submit", "bash", "truncated"),
        ("open a.py", "bash", "truncated"),
    ],
)
@pytest.mark.parametrize("is_call", [True, False])
def test_mini_swe_agent_has_one_shell_and_a_submission(tmp_path, command, action, ending, is_call):
    call = {"id": "c", "function": {"name": "bash", "arguments": json.dumps({"command": command})}}
    turn = {"tool_calls": [call]} if is_call else {"content": f"```mswea_bash_command\n{command}\n```"}
    messages = [{"role": "user", "content": "Go"}, {"role": "assistant"} | turn]
    row = {"trajectory_format": "mini-swe-agent-1", "info": {}, "messages": messages}
    (episode,) = episodes(read(written(tmp_path, row), "mini_swe_agent"))
    assert [(s.action, json.loads(s.arguments)) for s in episode.steps] == [(action, {"command": command})]
    assert episode.ending == ending


def test_a_bare_list_cut_off_is_truncated(tmp_path):
    path = tmp_path / "torn.json"
    path.write_text(
        (FIXTURES / "mini_swe_agent" / "github_issue.traj.json").read_text("utf-8")[:-30], "utf-8"
    )
    (episode,) = episodes(read(path, "mini_swe_agent"))
    assert (episode.ending, episode.ending_reason, episode.records) == ("truncated", "the log is cut off", 21)


# --- ADP, raw -----------------------------------------------------------------------------------------------------


def test_nebius_runs_the_last_fence_and_keeps_the_verdict():
    done, cut = episodes(fixture("adp_raw", "nebius.json"))
    assert [s.action for s in done.steps] == ["find_file", "edit", "submit"]
    assert json.loads(done.steps[1].arguments) == {"command": "edit 1:1\nx = 1\nend_of_edit"}
    assert (done.success, done.ending, done.model) == (True, "terminal", "model-c")
    assert (cut.success, cut.ending, cut.ending_reason) == (
        False,
        "truncated",
        "exit status: submitted (exit_context)",
    )
    assert roles(cut) == "suatau"
    assert (done.task_id, done.group_id) == ("owner__repo-12", cut.group_id)
    assert done.messages[0].role == "system"


def test_swe_smith_tags_are_calls():
    whole, torn = episodes(fixture("adp_raw", "swe_smith.jsonl"))
    assert [(s.action, s.result_status) for s in whole.steps] == [
        ("bash", "error"),
        ("str_replace_editor", "ok"),
        ("submit", "missing"),
    ]
    assert json.loads(whole.steps[1].arguments) == {
        "command": "create",
        "file_text": "def f():\n    return 1\n",
    }
    assert whole.steps[0].result.startswith("OBSERVATION:\nTraceback")
    assert (whole.tools, whole.success, whole.task_id) == (["bash", "submit"], True, "o__r.abc.func__x")
    assert [s.action_valid for s in whole.steps] == [True, False, True]
    assert (torn.ending, torn.success) == ("truncated", False)
    assert json.loads(torn.steps[0].arguments) == {"command": "sleep 1"}


def test_codeact_blocks_answers_and_wrong_answers():
    (episode,) = episodes(fixture("adp_raw", "codeact.json"))
    assert [(s.action, s.result_status) for s in episode.steps] == [
        ("python", "ok"),
        ("respond", None),
        ("respond", None),
    ]
    assert json.loads(episode.steps[0].arguments) == {"code": "print(1 + 1)"}
    assert (episode.task_id, episode.model, episode.success) == ("reasoning/maths/7", "model-e", None)
    assert (roles(episode), episode.ending) == ("suataua", "terminal")


def test_androidcontrol_is_a_person_at_a_screen():
    whole, cut = episodes(fixture("adp_raw", "androidcontrol.json"))
    assert (whole.source_kind, whole.policy_id, whole.task) == ("human_demo", "human", "Open the clock.")
    assert [(s.action, json.loads(s.arguments)) for s in whole.steps] == [
        ("click", {"x": 5, "y": 6}),
        ("open_app", {"app_name": "Clock"}),
    ]
    assert '"Apps"' in whole.steps[0].result
    assert '"Home"' in whole.messages[1].content
    assert whole.messages[2].thought == "Go to the apps"
    assert (whole.ending, cut.ending, whole.success) == ("terminal", "truncated", None)


def test_rows_with_structured_calls_are_read_as_plain_messages(tmp_path, conversation):
    row = conversation("a")
    (episode,) = episodes(read(written(tmp_path, [row]), "adp_raw"))
    assert [(s.action, s.result) for s in calls(episode)] == [("lookup", "found")]


# --- ADP, standardised --------------------------------------------------------------------------------------------


def test_adp_std_pairs_a_result_with_the_action_before_it():
    run, codeact, web, _ = episodes(fixture("adp_std", "std.json"))
    assert [(s.action, s.result, s.result_status) for s in calls(run)] == [
        ("bash", "a.py", "ok"),
        ("find_file", "Error: not found", "error"),
        ("submit", None, "missing"),
    ]
    assert (run.messages[1].content, run.messages[1].thought) == (None, "Look around.")
    assert [(s.action, s.kind) for s in codeact.steps] == [
        ("respond", "respond"),
        ("python", "tool"),
        ("respond", "respond"),
    ]
    assert [s.result for s in web.steps] == ["[1] text Bought", None]
    assert web.messages[2].thought == "The only button.\nBuy"


def test_adp_std_what_the_converter_appended_to_a_submission_is_no_part_of_the_run(tmp_path):
    run, codeact, *_ = episodes(fixture("adp_std", "std.json"))
    assert [item["content"] for item in json.loads(run.metadata)["converter_end"]] == [
        "Your solution has been verified as correct. ",
        "<finish> I did it! </finish>",
    ]
    assert (run.messages[-1].role, run.steps[-1].action) == ("assistant", "submit")
    assert "converter_end" not in json.loads(codeact.metadata)
    item = {"class_": "text_observation", "content": "Fix it.", "source": "user"}
    submit = {"class_": "api_action", "function": "submit", "kwargs": {}}
    say = {"class_": "message_action", "content": "<finish> Done. </finish>"}
    rows = [
        {"id": "a", "content": [item, submit, item | {"content": "diff --git"}, say]},
        {"id": "b", "content": [item, submit, say]},
        {"id": "c", "content": [item, submit | {"function": "ls"}, item | {"content": PRAISE}, say]},
        {"id": "d", "content": [item, submit, say | {"content": "I hope that helps."}]},
    ]
    diff, bare, other, word = episodes(read(written(tmp_path, rows), "adp_std"))
    assert [(s.action, s.result) for s in diff.steps] == [("submit", "diff --git")]
    assert [(s.action, s.result) for s in bare.steps] == [("submit", None)]
    assert [(s.action, s.result) for s in other.steps] == [("ls", PRAISE), ("respond", None)]
    assert [s.action for s in word.steps] == ["submit", "respond"]
    assert [(e.ending, e.ending_reason) for e in (diff, bare)] == [
        ("terminal", "the last action is submit")
    ] * 2


def test_adp_std_has_no_reward_but_what_is_logged():
    run, codeact, web, _ = episodes(fixture("adp_std", "std.json"))
    assert (run.success, run.score, codeact.success) == (None, None, None)
    assert [s.logged_reward for s in web.steps] == [0.5, None]
    assert (web.success, web.tools, web.ending) == (False, ["click", "stop"], "truncated")
    assert (run.ending_reason, codeact.ending_reason) == ("exit status: submitted", "the agent finished")
    assert (run.model, codeact.model, codeact.task_id) == ("model-c", "model-e", "reasoning/maths/7")


def test_adp_std_shell_and_python_are_named_as_elsewhere(tmp_path):
    said = {"class_": "text_observation", "content": "Go"}
    code = [
        {"class_": "code_action", "language": x, "content": "ls"} for x in ("bash", "sh", "python", "sql")
    ]
    (episode,) = episodes(read(written(tmp_path, [{"id": "a", "content": [said, *code]}]), "adp_std"))
    assert [(s.action, json.loads(s.arguments)) for s in episode.steps] == [
        ("bash", {"command": "ls"}),
        ("bash", {"command": "ls"}),
        ("python", {"code": "ls"}),
        ("sql", {"code": "ls"}),
    ]


def test_adp_std_items_that_are_none_are_set_aside_alone():
    readings = fixture("adp_std", "std.json")
    assert [r.rule for r in rejects(readings)] == ["nameless_call", "bad_item"]
    assert roles(episodes(readings)[-1]) == "uaa"


def test_adp_std_opens_with_the_task_even_as_an_action():
    (episode,) = episodes(fixture("adp_std", "androidcontrol.jsonl"))
    assert (episode.task, roles(episode), len(episode.steps)) == ("Open the clock.", "uuat", 1)
    assert (episode.source_kind, episode.ending) == ("human_demo", "terminal")
    assert "12:00" in episode.steps[0].result


# --- ATIF ---------------------------------------------------------------------------------------------------------

RUN = "3f2b1c00-0000-4000-8000-00000000000"


def test_atif_steps():
    main = episodes(fixture("atif", "subagents.json"))[0]
    assert roles(main) == "suattata"
    one, two, delegate, said = main.steps
    assert [(s.action, s.result, s.parallel_group) for s in (one, two)] == [
        ("search", "a cat\n[image]", 0),
        ("search", "a dog", 0),
    ]
    assert (delegate.tool_call_id, delegate.result, delegate.result_status) == ("c1", "", "empty")
    assert said.action == "respond"
    turn = main.messages[2]
    assert (turn.thought, turn.model, turn.tokens_in, turn.tokens_out) == ("Ask twice.", "model-g", 120, 9)
    assert main.messages[1].content == "What is in the picture?\n[image]"
    assert (main.tools, main.model, main.temperature) == (["delegate", "finish", "search"], "model-f", 0.7)
    assert [s.action_valid for s in main.steps] == [True] * 4
    assert (main.ending, main.ending_reason, main.success) == ("terminal", "end of conversation", None)


def test_atif_keeps_cost_and_counts_token_lists():
    details = json.loads(episodes(fixture("atif", "subagents.json"))[0].metadata)["step_details"]
    assert details[0] == {
        "step_id": 3,
        "reasoning_effort": "high",
        "llm_call_count": 1,
        "metrics": {
            "prompt_tokens": 120,
            "completion_tokens": 9,
            "cached_tokens": 100,
            "cost_usd": 0.002,
            "logprobs": 2,
            "completion_token_ids": 2,
            "extra": {"reasoning_tokens": 3},
        },
    }
    assert details[2]["subagent_trajectory_ref"] == [{"trajectory_id": "counter"}]


def test_atif_sub_agents_are_episodes_below_their_parent():
    readings = fixture("atif", "subagents.json")
    main, child, deep = episodes(readings)
    assert (child.parent_episode_id, deep.parent_episode_id) == (main.episode_id, child.episode_id)
    assert [e.records for e in (main, child, deep)] == [1, 0, 0]
    assert (child.native_id, child.model, child.task) == ("counter", "model-h", "count the legs")
    assert child.locator == "subagents.json#/subagent_trajectories/0"
    parts = [(r.rule, r.level, r.episode_id) for r in rejects(readings)]
    assert parts == [
        ("bad_step", "part", main.episode_id),
        ("bad_subagent", "part", main.episode_id),
    ]


def test_atif_results_without_call_id_are_paired_by_step():
    (episode,) = episodes(fixture("atif", "terminus.json"))
    assert [(s.action, s.result) for s in episode.steps] == [
        ("bash_command", "$ cat hello.txt\nhi"),
        ("bash_command", "$ cat hello.txt\nhi"),
        ("respond", None),
        ("mark_task_complete", "Are you sure?"),
    ]
    assert roles(episode) == "uatausat"
    assert (episode.ending, episode.ending_reason) == ("truncated", "continued in another trajectory")


def test_atif_continuations_and_summaries_are_linked():
    (first,) = episodes(fixture("atif", "terminus.json"))
    again, summary, *_ = episodes(fixture("atif", "rows.jsonl"))
    assert first.episode_id == episode_id("atif", f"{RUN}2", "")
    assert (again.continues_episode_id, again.parent_episode_id) == (first.episode_id, None)
    assert (summary.continues_episode_id, summary.parent_episode_id) == (None, first.episode_id)


def test_atif_context_copied_from_before_is_not_decided_again():
    again = episodes(fixture("atif", "rows.jsonl"))[0]
    assert [s.action for s in again.steps] == ["mark_task_complete"]
    assert [(m.role, m.content) for m in again.messages[:3]] == [
        ("user", "Write hello.txt."),
        ("assistant", "Analysis: empty."),
        ("user", "$ ls"),
    ]
    assert (again.ending, again.ending_reason) == ("terminal", "the last action is mark_task_complete")


def test_atif_bad_pieces_are_set_aside_alone():
    readings = fixture("atif", "rows.jsonl")
    scripted, voice = episodes(readings)[2:]
    assert [r.rule for r in rejects(readings)] == [
        "nameless_call",
        "nameless_call",
        "bad_step",
        "not_a_conversation",
    ]
    assert [s.action for s in scripted.steps] == ["go"]
    assert (scripted.ending, scripted.policy_id, scripted.model) == (
        "truncated",
        "scripted",
        None,
    )
    assert scripted.episode_id != voice.episode_id
    assert (voice.messages[0].content, voice.messages[1].content) == ("[audio]", "I hear you.")
    assert (voice.score, voice.steps[0].logged_reward, voice.task_id) == (1.0, 1.0, "hello")


def harbor_trial(tmp_path: Path, result: Any, name: str = "subagents.json") -> list[Any]:
    path = tmp_path / "job" / "trial" / "agent" / "trajectory.json"
    path.parent.mkdir(parents=True)
    path.write_text((FIXTURES / "atif" / name).read_text("utf-8"), "utf-8")
    (found,) = get("atif").companions(path)
    found.write_text(result if isinstance(result, str) else json.dumps(result), "utf-8")
    return list(get("atif").read(Source(path, "job/trial/agent/trajectory.json", (found,))))


@pytest.mark.parametrize(
    ("rewards", "score", "success"),
    [
        ({"reward": 1.0}, 1.0, True),
        ({"pass": 0}, 0.0, False),
        ({"a": 1, "b": 0}, None, None),
        ({"reward": 0.5}, 0.5, None),
    ],
)
def test_harbor_rewards_come_from_the_trial(tmp_path, rewards, score, success):
    result = {"task_name": "hello", "verifier_result": {"rewards": rewards}, "exception_info": None}
    main, child, _ = episodes(harbor_trial(tmp_path, result))
    assert (main.score, main.success, main.task_id, main.records) == (score, success, "hello", 2)
    assert (child.score, child.task_id, child.records) == (None, None, 0)
    assert main.ending == "terminal"
    assert json.loads(main.metadata)["trial"]["verifier_result"] == {"rewards": rewards}


def test_a_harbor_trial_that_was_stopped_is_truncated(tmp_path):
    stop = {"exception_type": "AgentTimeoutError", "exception_traceback": "…"}
    result = {"verifier_result": {"rewards": {"reward": 0.0}}, "exception_info": stop}
    main = episodes(harbor_trial(tmp_path, result))[0]
    assert (main.ending, main.ending_reason) == ("truncated", "stopped: AgentTimeoutError")
    assert json.loads(main.metadata)["trial"]["exception_info"] == {"exception_type": "AgentTimeoutError"}


def test_the_reward_of_a_run_is_not_that_of_its_first_part(tmp_path):
    (first,) = episodes(
        harbor_trial(tmp_path, {"verifier_result": {"rewards": {"reward": 1.0}}}, "terminus.json")
    )
    assert (first.score, first.success, first.ending) == (None, None, "truncated")


@pytest.mark.parametrize(("result", "rule"), [("{", "malformed_record"), ({"a": 1}, "not_a_trial_result")])
def test_a_bad_trial_result_is_set_aside_alone(tmp_path, result, rule):
    readings = harbor_trial(tmp_path, result)
    assert [(r.rule, r.locator) for r in rejects(readings) if r.level == "record"] == [
        (rule, "job/trial/result.json#")
    ]
    assert episodes(readings)[0].records == 1


def test_a_trial_result_beside_no_run_is_skipped(tmp_path):
    path = written(tmp_path, {"steps": None})
    result = tmp_path / "result.json"
    result.write_text('{"verifier_result": null}', "utf-8")
    readings = list(get("atif").read(Source(path, "a/agent/trajectory.json", (result,))))
    assert [type(r).__name__ for r in readings] == ["Reject", "Skip"]
    assert sum(r.records for r in readings) == 2
    assert get("atif").companions(tmp_path / "trajectory.json") == []


@pytest.mark.parametrize("version", ["1.0", "1.3", "1.6", "1.8"])
def test_every_atif_version_is_claimed(tmp_path, version):
    row = {"schema_version": f"ATIF-v{version}", "session_id": "s", "agent": {"name": "a", "version": "1"}}
    steps = [{"step_id": 1, "source": "user", "message": "hi"}]
    assert claims(written(tmp_path, row | {"steps": steps})) == ["atif"]


# --- one run, several formats -------------------------------------------------------------------------------------

ISSUE = "It fails\n\n    with a trace."


@pytest.mark.parametrize(
    "task",
    [
        f"We solve an issue.\nISSUE:\n{ISSUE}\n\nINSTRUCTIONS:\nGo on.",
        f"<uploaded_files>\n/a\n</uploaded_files>\n<pr_description>\n{ISSUE}\n</pr_description>\nRead the <pr_description>.",
        f"<issue_description>\n{ISSUE}\n</issue_description>",
        f"<pr_description>\nConsider the following PR description:\n{ISSUE}\n</pr_description>",
        f"Please solve this issue: {ISSUE}\n\nYou can execute bash commands and edit files.",
        f"Task:\n{ISSUE}",
        f"{ISSUE}\n\nYou have 5 chances to interact with the environment or propose a solution.",
    ],
)
def test_a_task_has_one_group_whatever_stands_around_it(task):
    assert task_group(task) == task_group(ISSUE)


def test_tasks_that_differ_or_are_none_share_no_group():
    assert task_group("Fix a") != task_group("Fix b")
    assert [task_group(nothing) for nothing in (None, "", " \n")] == [None] * 3
    assert [issue_in(task) for task in ("hi", None, "the <pr_description> says")] == [None] * 3


def test_every_format_gives_a_run_the_same_group(tmp_path, conversation):
    user = f"ISSUE:\n{ISSUE}\n\nINSTRUCTIONS:\nGo."
    said, fence = {"role": "user", "content": user}, "```mswea_bash_command\nls\n```"
    step = {"action": "ls\n", "observation": "a", "response": "x", "thought": "y"}
    event = {"id": 0, "source": "user", "timestamp": "2025-01-01T00:00:00", "action": "message"}
    row = conversation("a")
    row["messages"][0] = said
    rows = {
        "swe_agent_traj": {"history": [said], "trajectory": [step], "info": {}},
        "mini_swe_agent": [said, {"role": "assistant", "content": fence}],
        "adp_raw": [{"trajectory": [{"role": "user", "text": user}], "target": True}],
        "adp_std": [{"id": "a", "content": [{"class_": "text_observation", "content": user}]}],
        "openhands_events": [event | {"args": {"content": user}}],
        "openhands_output": {"instance_id": "a", "history": [event | {"args": {"content": user}}]},
        "openai_messages": [row],
    }
    groups = {name: episodes(read(written(tmp_path, rows[name]), name))[0].group_id for name in rows}
    assert groups == dict.fromkeys(rows, task_group(ISSUE))


def test_plain_conversations_share_no_group(tmp_path, conversation):
    assert episodes(read(written(tmp_path, [conversation("a")]), "openai_messages"))[0].group_id is None


@pytest.mark.parametrize(
    ("instance", "task"),
    [
        ("python__mypy-15976_0", "python__mypy-15976"),
        ("owner__repo-12_34", "owner__repo-12"),
        ("owner__repo-12", "owner__repo-12"),
        ("o__r.abc.func_pm__fq_7", "o__r.abc.func_pm__fq_7"),
        ("case-1_2", "case-1_2"),
        (None, None),
    ],
)
def test_the_number_of_a_run_is_no_part_of_its_task(tmp_path, conversation, instance, task):
    assert instance_task(instance) == task
    row = conversation("a") | {"instance_id": instance, "task_id": None}
    assert episodes(read(written(tmp_path, [row]), "openai_messages"))[0].task_id == task


# --- telling them apart -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        {"parent": {"schema_version": "ATIF-v1.7", "steps": []}, "child": {}},
        {"schema_version": "Other-v1.0", "agent": {}, "steps": [{"step_id": 1, "source": "user"}]},
        [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "```python\nx\n```"}],
        [{"conversations": [{"from": "human", "value": "hi <execute>x</execute>"}], "tools": "[]"}],
        [{"conversations": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}],
        {"id": 3, "timestamp": "2025-01-01", "source": "agent", "action": "run", "args": {}},
        [{"action": "click", "observation": "page", "reward": 1.0}],
        {"id": "a", "content": [{"type": "text", "text": "class_"}], "details": {}},
        [{"instance_id": "a", "trajectory": [{"action": "ls", "observation": "a"}], "target": True}],
        {"history": [{"role": "user", "content": "hi"}], "instance_id": "a", "metrics": {}},
    ],
    ids=lambda value: str(value)[:40],
)
def test_look_alikes_are_not_claimed(tmp_path, value):
    assert claims(written(tmp_path, value)) == []


def test_structured_calls_beside_tags_belong_to_plain_messages(tmp_path, conversation):
    row = conversation("a")
    row["messages"].insert(0, {"role": "system", "content": "call with <function=lookup>"})
    assert claims(written(tmp_path, [row])) == ["openai_messages"]
    for message in row["messages"]:
        message.pop("tool_calls", None)
    assert claims(written(tmp_path, [row])) == ["adp_raw"]


# --- calls in text ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("```bash\nls\n```", ["ls"]),
        ("```python\nx\n```\n```bash\nls\n\n```", ["ls\n"]),
        ("no fence", []),
        ("```bash\nnever closed", []),
        ("```bash\n```", [""]),
        ("inline ```bash\nls\n``` no", []),
    ],
)
def test_fenced_blocks(text, blocks):
    assert fenced(text, "bash") == blocks


def test_tags_in_text():
    two = function_calls(
        "<function=a>\n<parameter=x>1</parameter></function> <function=b></function>", "here"
    )
    assert [(call.name, call.arguments, call.locator) for call in two] == [
        ("a", {"x": "1"}, "here"),
        ("b", {}, "here"),
    ]
    (code,) = execute_calls("say <execute>\nprint(1)\n</execute>", "here")
    assert (code.name, code.arguments) == ("python", {"code": "print(1)"})


# --- counts on the real files -------------------------------------------------------------------------------------

needs_logs = pytest.mark.skipif(not LOGS.is_dir(), reason="the shared logs are not here")

DIFFERENCES = {
    (
        "adp_raw",
        "messages",
    ): "AndroidControl: goal, first screen, actions and screens are messages, not screens alone",
    (
        "adp_raw",
        "tool_results",
    ): "any message after a call is its result; one after a turn without a call is not",
    ("adp_std", "messages"): "what the converter appended to a submission is no part of the run",
    ("adp_std", "tool_results"): "what the converter appended to a submission is no part of the run",
    ("openhands_output", "messages"): "two events per run that fetch context are no messages",
}
"""Why a count differs from the independent one; docs/formats/coding.md has the same words."""

ELSEWHERE = {"swe-gym_openhands_sampled_trajectories.sample_raw.json": "openai_messages"}


def files() -> list[Path]:
    folders = [LOGS / name for name in FORMATS if (LOGS / name).is_dir()]
    return sorted(path for folder in folders for path in folder.iterdir() if path.name not in ELSEWHERE)


def counts_of(path: Path) -> Counter[str]:
    readings = read(path, path.parent.name, path.name)
    for item in readings:
        assert isinstance(item, Episode), item
    return counts_in(readings)


def adjust(counts: Counter[str], path: Path) -> None:
    """Change the independent counts by what the documented differences come to, counted on the raw file."""
    if path.parent.name == "openhands_output":
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        counts["messages"] -= sum(
            "recall" in (e.get("action"), e.get("observation")) for r in rows for e in r["history"]
        )
    elif path.name.startswith(("nebius", "swe-smith")) and path.parent.name == "adp_std":
        counts["messages"] -= 2 * counts["episodes"]
        counts["tool_results"] -= counts["episodes"]
    elif path.name.startswith("androidcontrol.sample_raw"):
        rows = json.loads(path.read_text("utf-8"))
        counts["messages"] = sum(2 + 2 * len(row["actions"]) for row in rows)
    elif path.name.startswith(("codeact", "swe-smith")) and path.parent.name == "adp_raw":
        key, mark = (
            ("conversations", "<execute>") if path.name.startswith("codeact") else ("messages", "<function=")
        )
        rows = [row[key] for row in json.loads(path.read_text("utf-8"))]
        counts["tool_results"] = sum(
            a["role"] == "assistant" and mark in a["content"] and b["role"] == "user"
            for row in rows
            for a, b in pairwise(row)
        )


@needs_logs
@pytest.mark.parametrize("path", files(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_counts_agree_with_the_independent_ones(path):
    expected = independent(path)
    adjust(expected, path)
    assert {k: v for k, v in counts_of(path).items() if v} == {k: v for k, v in expected.items() if v}


@needs_logs
@pytest.mark.parametrize("name", FORMATS)
def test_totals_and_their_differences_are_those_of_the_documentation(name):
    counted = ((independent(path), counts_of(path)) for path in files() if path.parent.name == name)
    totals_as_told("formats/coding.md", name, counted, DIFFERENCES)


@needs_logs
def test_real_files_are_claimed_by_their_format_alone():
    for name in FORMATS:
        for path in (LOGS / name).iterdir():
            assert claims(path) == [ELSEWHERE.get(path.name, name)], path.name


@needs_logs
def test_real_endings():
    endings = Counter(
        (path.parent.name, item.ending)
        for path in files()
        for item in episodes(read(path, path.parent.name, path.name))
    )
    assert endings == {
        ("adp_raw", "terminal"): 18,
        ("adp_std", "terminal"): 18,
        ("mini_swe_agent", "terminal"): 1,
        ("openhands_events", "terminal"): 2,
        ("openhands_output", "terminal"): 2,
        ("openhands_output", "truncated"): 1,
    }


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("tomerfiliba__plumbum-366_17", "tomerfiliba__plumbum-366"),
        ("a__b.1d70d009.lm_rewrite__nuzjfyur.l13ggwmx_1", "a__b.1d70d009.lm_rewrite__nuzjfyur"),
        ("getmoto__moto.694ce1f4.pr_6055.vtqmgmtg_1", "getmoto__moto.694ce1f4.pr_6055"),
        ("tomerfiliba__plumbum-366", None),
        ("0", None),
        (None, None),
    ],
)
def test_a_runs_name_tells_its_task(name, task):
    assert run_task(name) == task
