"""The benchmark harnesses: τ²-bench, tau-bench's few-shot dialogues, AgentDojo, Inspect (JSON and `.eval`)."""

from __future__ import annotations

import json
import sys
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.connectors.benchmarks.inspect_log import InspectEval
from logforge.connectors.benchmarks.inspect_sample import first_score
from logforge.connectors.detection import detect, get
from logforge.connectors.records.base import Source
from logforge.ingestion.sources.discover import judge
from logforge.schemas.episode import Episode, Reject, Skip
from support.made_archives import FIXTURES, archive, document, members, with_method
from support.real_counts import EXPECTED, LOGS, counts_in, independent, totals_as_told

FORMATS = ("agentdojo", "inspect_eval", "inspect_json", "tau2_bench", "tau_bench_fewshot")


def read(path: Path, name: str | None = None) -> list[Any]:
    return list(get(name or path.parent.name).read(Source(path, "log")))


def episodes(readings: list[Any]) -> list[Episode]:
    return [item for item in readings if isinstance(item, Episode)]


def rejects(readings: list[Any]) -> list[Reject]:
    return [item for item in readings if isinstance(item, Reject)]


def counted(readings: list[Any]) -> int:
    return sum(item.records for item in readings if not isinstance(item, Reject) or item.level == "record")


def facts(episode: Episode) -> dict[str, Any]:
    return json.loads(episode.metadata)


def write(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value), "utf-8")
    return path


# --- τ²-bench -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def simulations() -> list[Episode]:
    return episodes(read(FIXTURES / "tau2_bench" / "cases.json"))


def test_tau2_the_greeting_is_no_decision_and_the_task_comes_before_the_first(simulations):
    phone = simulations[0]
    assert [m.role for m in phone.messages] == [
        "assistant",
        "user",
        *["assistant", "tool", "tool"],
        "assistant",
        "user",
    ]
    assert phone.steps[0].position == 2
    assert phone.task == "My phone has no service."
    assert (phone.task_id, phone.native_id) == ("telecom/t1", "00000000-0000-4000-8000-000000000001")


def test_tau2_the_users_own_tools_and_all_that_is_hidden_stay_out_of_the_messages(simulations):
    for episode in simulations:
        told = " ".join([*(m.content or "" for m in episode.messages), episode.task or ""])
        assert "SECRET" not in told
        assert "HIDDEN" not in told
    kept = facts(simulations[0])["user_tools"]
    assert [sorted(entry) for entry in kept] == [["calls", "index"], ["index", "result"]] * 2
    assert {s.action for e in simulations for s in e.steps if s.kind == "tool"} == {
        "get_customer",
        "get_line",
    }


def test_tau2_calls_and_results(simulations):
    first, second, asked = simulations[0].steps
    assert (first.arguments, first.result, first.parallel_group) == ('{"phone":"555-1"}', '{"id": "C1"}', 0)
    assert (second.result_status, second.error_class, second.parallel_group) == ("error", "not_found", 0)
    assert asked.kind == "clarify"
    turn = simulations[0].messages[2]
    assert (turn.tokens_in, turn.tokens_out) == (900, 40)
    assert turn.created_at == 1_751_450_460_000_000


def test_tau2_text_that_is_json_stays_text_and_asks_when_its_message_does(simulations):
    wrapped = simulations[3]
    assert [s.kind for s in wrapped.steps] == ["clarify", "respond"]
    assert wrapped.messages[2].content == '{"message": "Which line is it?", "confidence": 0.9}'


def test_tau2_endings_and_outcomes(simulations):
    found = [(e.ending, e.ending_reason, e.success, e.score) for e in simulations]
    assert found == [
        ("terminal", "termination reason: user_stop", True, 1.0),
        ("truncated", "termination reason: max_steps", None, None),
        ("truncated", "the simulated user left: its scenario says no more", False, 0.5),
        ("terminal", "termination reason: user_stop", None, None),
        ("terminal", "termination reason: agent_stop", True, 1.0),
        ("truncated", "termination reason: agent_error", None, None),
    ]
    assert len({e.group_id for e in simulations}) == 2
    assert facts(simulations[0])["reward_info"]["nl_assertions"] == [{"met": True, "nl_assertion": "polite"}]


def test_tau2_settings_become_fields(simulations):
    episode = simulations[0]
    assert (episode.model, episode.policy_id, episode.temperature) == (
        "m-1",
        "m-1@t=0.5#prompt:4be2d091",
        0.5,
    )
    assert episode.tools == ["get_customer", "get_line"]
    assert episode.reference == '[{"name":"toggle_airplane_mode"}]'
    assert episode.prompt_version is not None
    assert episode.started_at == 1_751_450_400_000_000
    assert simulations[4].task == "A ticket that the agent saw."


def test_tau2_what_cannot_be_read_is_set_aside_alone():
    readings = read(FIXTURES / "tau2_bench" / "cases.json")
    assert counted(readings) == 7
    (voice,) = [r for r in rejects(readings) if r.level == "record"]
    assert voice.locator == "log#/simulations/5"
    assert "voice" in voice.reason
    assert voice.rule == "unsupported_shape"
    parts = [(r.rule, r.locator) for r in rejects(readings) if r.level == "part"]
    assert parts == [
        ("orphan_result", "log#/simulations/6/messages/2/tool_messages/0"),
        ("unknown_role", "log#/simulations/6/messages/3"),
        ("nameless_call", "log#/simulations/6/messages/4/tool_calls/0"),
    ]


def test_tau2_placeholder_times_are_no_clock():
    real = episodes(read(FIXTURES / "tau2_bench" / "airline.2simulations.json"))
    assert {(e.started_at, e.ended_at) for e in real} == {(None, None)}
    assert all(m.created_at is None for e in real for m in e.messages)


def test_a_torn_result_file_gives_its_whole_simulations(tmp_path):
    text = (FIXTURES / "tau2_bench" / "cases.json").read_text("utf-8")
    for data in (text[: text.index('"narrator"')], json.dumps(json.loads(text))[:-600]):
        path = tmp_path / "torn.json"
        path.write_text(data, "utf-8")
        assert [claim.connector.name for claim in detect(path)] == ["tau2_bench"]
        readings = read(path, "tau2_bench")
        assert [e.native_id[-1] for e in episodes(readings)] == list("12345")
        assert episodes(readings)[0].model == "m-1"
        assert [r.rule for r in rejects(readings) if r.level == "record"][-1] == "malformed_record"


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"info": {}, "simulations": []}, Skip(reason="no_simulations")),
        ({"info": {}}, Skip(reason="no_simulations")),
        ({"simulations": 7}, "not_a_conversation"),
        (7, "not_a_conversation"),
    ],
)
def test_a_document_without_its_list_is_accounted_for(tmp_path, row, found):
    (reading,) = read(write(tmp_path / "x.json", row), "tau2_bench")
    assert reading == found or reading.rule == found


# --- tau-bench few-shot -------------------------------------------------------------------------------------------


def test_fewshot_calls_that_the_log_lost_are_not_made_up():
    readings = read(FIXTURES / "tau_bench_fewshot" / "airline.4dialogues.jsonl")
    lost, spoken, _, whole = episodes(readings)
    assert lost.steps == spoken.steps == []
    assert [m.role for m in lost.messages][3:6] == ["assistant", "system", "assistant"]
    assert [m.content for m in lost.messages][3:5] == [None, "Error: user not found"]
    assert spoken.messages[-2].content.endswith("Please hold on for a moment while I do that.")
    assert {s.kind for s in whole.steps} == {"respond", "clarify"}
    assert len(whole.steps) == 9
    parts = [r for r in rejects(readings) if r.episode_id == lost.episode_id]
    assert [(r.rule, r.level, r.locator) for r in parts] == [
        ("lost_call", "part", "log:1#/messages_display")
    ] * 2
    assert facts(lost)["lost_calls"] == 2


@pytest.mark.parametrize(
    ("text", "ending", "reason"),
    [
        ("user: hi\nassistant: bye\nuser: ###STOP###", "terminal", "the user ended it"),
        ("user: hi\nassistant: None\ntool: Transfer successful", "terminal", "handed over to a human"),
        ("user: hi\nassistant: bye", "truncated", "the log stops without an end"),
    ],
)
def test_fewshot_endings(tmp_path, text, ending, reason):
    (episode,) = episodes(read(write(tmp_path / "x.jsonl", {"messages_display": text}), "tau_bench_fewshot"))
    assert (episode.ending, episode.ending_reason, episode.task) == (ending, reason, "hi")


def test_fewshot_words_without_a_role_are_set_aside(tmp_path):
    path = write(tmp_path / "x.jsonl", {"messages_display": "once upon\nuser: a\nb: c\nassistant: d"})
    readings = read(path, "tau_bench_fewshot")
    assert [m.content for m in episodes(readings)[0].messages] == ["a\nb: c", "d"]
    assert [(r.rule, r.excerpt) for r in rejects(readings)] == [("unknown_role", "once upon\n")]


# --- AgentDojo ----------------------------------------------------------------------------------------------------


def test_agentdojo_without_ids_results_come_in_the_calls_order():
    (episode,) = episodes(read(FIXTURES / "agentdojo" / "slack_user_task_1_injection_task_1.json"))
    assert len(episode.steps) == 3
    assert (episode.messages[-1].role, episode.messages[-1].content or "") == (
        "assistant",
        "",
    )  # no word, no step
    assert all(s.result_status == "ok" for s in episode.steps if s.kind == "tool")
    assert (episode.success, episode.ending, episode.task_id) == (True, "terminal", "slack/user_task_1")
    assert (episode.policy_id, episode.model) == ("script:ground-truth", None)
    assert episode.source_kind == "synthetic"
    assert facts(episode)["attack_succeeded"] is False


def test_agentdojo_security_says_nothing_without_an_injection():
    (episode,) = episodes(read(FIXTURES / "agentdojo" / "banking_user_task_0_none.json"))
    assert (facts(episode)["security"], facts(episode)["attack_succeeded"]) == (True, None)


def test_agentdojo_runs_of_a_model():
    readings = read(FIXTURES / "agentdojo" / "model_run.json")
    (episode,) = episodes(readings)
    read_file, balance, pay = episode.steps
    assert (balance.result, balance.parallel_group) == ("1810 EUR", 0)
    assert (read_file.result_status, read_file.error_class) == ("error", "not_found")
    assert read_file.result == "ValueError: File 'bill.txt' not found"
    assert pay.result_status == "missing"
    turn = episode.messages[2]
    assert (turn.content, turn.thought) == ("Looking.", "first look, then pay")
    assert (episode.ending, episode.success, episode.model) == ("truncated", False, "claude-x-tool_filter")
    assert facts(episode)["attack_succeeded"] is True
    assert facts(episode)["injections"] == {"v": "do evil"}
    assert [(r.rule, r.locator) for r in rejects(readings)] == [("orphan_result", "log#/messages/5")]
    assert episode.ended_at - episode.started_at == 1_500_000


def test_agentdojo_an_error_of_the_run_truncates_it(tmp_path):
    row = document("agentdojo/banking_user_task_0_none.json") | {"error": "Skipped because of context length"}
    (episode,) = episodes(read(write(tmp_path / "x.json", row), "agentdojo"))
    assert (episode.ending, episode.ending_reason) == (
        "truncated",
        "error: Skipped because of context length",
    )


# --- Inspect ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def samples() -> dict[str, Episode]:
    found = episodes(read(FIXTURES / "inspect_json" / "cases.json"))
    return {e.locator.rpartition("/")[2]: e for e in found}


def test_inspect_attachments_are_put_back_and_found_again(samples):
    episode = samples["0"]
    assert episode.task == "How many files are there?"
    assert episode.messages[0].locator == "log#/samples/0/attachments/0123456789abcdef0123456789abcdef"
    assert json.loads(episode.steps[3].arguments)["cmd"].startswith("a.txt b.txt a.txt")


def test_inspect_calls_results_and_thoughts(samples):
    episode = samples["0"]
    searched, listed, computed, again, said = episode.steps
    assert (searched.action, searched.arguments, searched.result) == (
        "web_search",
        '{"q":"cats"}',
        "two cats",
    )
    assert (listed.action, listed.result[:11], listed.latency_s) == ("bash", "a.txt b.txt", 0.25)
    assert (computed.result_status, computed.result) == ("timeout", "Command timed out before completing.")
    assert (again.result_status, again.result) == ("refused", "Tool call was rejected.")
    assert {s.parallel_group for s in (searched, listed, computed)} == {0}
    assert (said.kind, episode.messages[said.position].thought) == ("respond", "[reasoning]")
    assert episode.messages[said.position].content == "Two files.\n[image]"
    assert episode.messages[1].thought == "list first"
    assert facts(episode)["call_parse_errors"] == {"c2": "cannot parse"}


def test_inspect_events_tell_tokens_times_and_tools(samples):
    episode = samples["0"]
    turn = episode.messages[1]
    assert (turn.model, turn.tokens_in, turn.tokens_out) == ("m-1-2025", 100, 7)
    assert turn.created_at == 1_746_093_602_000_000
    # Not those of a grader: its messages are not the sample's.
    assert [step.action for step in episode.steps] == ["web_search", "bash", "python", "bash", "respond"]
    assert episode.tools == ["bash", "python"]
    # The provider ran web_search unlisted: it was on offer, which shows from then on; submit came later.
    later = ["bash", "python", "submit", "web_search"]
    assert [step.tools for step in episode.steps] == [None, None, None, later, later]
    assert all(step.action_valid for step in episode.steps)
    assert episode.started_at == 1_746_093_599_000_000


def test_inspect_epochs_are_trials_of_one_task(samples):
    first, second = samples["0"], samples["1"]
    assert first.task_id == second.task_id == "files/1"
    assert first.group_id == second.group_id
    assert first.episode_id != second.episode_id
    assert first.native_id == "uuidSampleOneEpochOne1"
    assert (first.policy_id, first.temperature) == ("lab/m-1@t=0.7", 0.7)


def test_inspect_scores_endings_and_references(samples):
    found = {key: (e.success, e.score, e.ending, e.ending_reason) for key, e in samples.items()}
    assert found == {
        "0": (True, 1.0, "terminal", "scored"),
        "1": (False, 0.0, "terminal", "scored"),
        "2": (None, 0.25, "truncated", "limit: message (4)"),
        "3": (None, None, "truncated", "error: Docker went away"),
        "4": (None, 0.5, "truncated", "the model's output limit"),
        "5": (None, None, "truncated", "the log stops before the agent's answer"),
        "6": (None, None, "terminal", "scored"),
        "7": (None, None, "terminal", "scored"),
        "8": (True, 1.0, "terminal", "scored"),
    }
    assert facts(samples["0"])["scores"]["style"] == {"value": "I"}
    assert [samples[key].reference for key in "067"] == ["gold", '["a","b"]', None]
    assert "store" not in facts(samples["0"])


@pytest.mark.parametrize(
    ("value", "score"),
    [
        ("C", 1.0),
        ("I", 0.0),
        ("P", 0.5),
        ("N", 0.0),
        ("Yes", 1.0),
        ("False", 0.0),
        (True, 1.0),
        (0, 0.0),
        (2.5, 2.5),
    ]
    + [(value, None) for value in ("c", "x", "", None, {}, [1], 10**400)],
)
def test_inspect_values_of_a_scorer(value, score):
    assert first_score({"scores": {"a": {"value": value}, "b": {"value": "C"}}}) == score


def test_inspect_what_cannot_be_read_is_set_aside_alone():
    readings = read(FIXTURES / "inspect_json" / "cases.json")
    assert counted(readings) == 11
    found = [(r.level, r.rule, r.locator) for r in rejects(readings)]
    assert found == [
        ("part", "unreadable_outcome", "log#/samples/7/scores/grader/value"),
        ("part", "orphan_result", "log#/samples/8/messages/0"),
        ("part", "unknown_role", "log#/samples/8/messages/3"),
        ("record", "not_a_conversation", "log#/samples/9"),
        ("record", "not_a_conversation", "log#/samples/10"),
    ]


def test_inspect_a_run_that_was_stopped_leaves_its_unscored_samples_open(tmp_path):
    log = document("inspect_json/cases.json")
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    for status, ending in (("success", "terminal"), ("cancelled", "truncated"), ("started", "truncated")):
        log |= {"status": status, "samples": [{"id": 1, "epoch": 1, "messages": messages}]}
        (episode,) = episodes(read(write(tmp_path / "x.json", log), "inspect_json"))
        assert episode.ending == ending
    log["samples"] = None
    assert read(write(tmp_path / "x.json", log), "inspect_json") == [Skip(reason="no_samples")]


def test_inspect_a_sample_is_the_same_episode_in_either_container(tmp_path, samples):
    readings = read(
        archive(tmp_path / "x.eval", members(document("inspect_json/cases.json"))), "inspect_eval"
    )
    found = episodes(readings)
    assert [e.episode_id for e in found] == [e.episode_id for e in samples.values()]
    assert found[0].locator == "log!samples/0_epoch_1.json#"
    assert found[1].messages[0].locator == "log!samples/1_epoch_1.json#/messages/0"
    assert counted(readings) == 11


def test_inspect_a_real_log_with_tools_and_a_limit():
    found = episodes(read(FIXTURES / "inspect_eval" / "mock_tools_limit.eval"))
    ends = [(e.task_id, e.ending, e.ending_reason, e.success) for e in found]
    assert ends == [
        ("task/s1", "terminal", "scored", True),
        ("task/s2", "terminal", "scored", False),
        ("task/s1", "truncated", "limit: message (8.0)", False),
        ("task/s2", "truncated", "limit: message (8.0)", False),
    ]
    assert len({e.group_id for e in found}) == 2
    assert {tuple(e.tools) for e in found} == {("add",)}
    assert [s.result_status for s in found[0].steps] == ["ok", "error", None]
    assert found[0].steps[1].result == "unlucky number"
    assert all(s.latency_s for e in found for s in e.steps if s.kind == "tool")


def test_inspect_a_log_of_a_run_that_crashed_has_only_its_journal(tmp_path):
    log = members(document("inspect_json/cases.json"))
    log["_journal/start.json"] = log.pop("header.json").replace('"status": "success", ', "")
    path = archive(tmp_path / "x.eval", log)
    assert [claim.connector.name for claim in detect(path)] == ["inspect_eval"]
    assert {e.policy_id for e in episodes(read(path, "inspect_eval"))} == {"lab/m-1@t=0.7"}


def test_inspect_one_damaged_member_does_not_take_its_neighbours_with_it(tmp_path):
    log = members(document("inspect_json/cases.json"))
    log["samples/1_epoch_1.json"] = log["samples/1_epoch_1.json"][:-5]
    path = archive(tmp_path / "x.eval", log, zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    at = data.index(b"Docker went away")
    data[at : at + 6] = b"Gadget"
    path.write_bytes(data)
    readings = read(path, "inspect_eval")
    assert len(episodes(readings)) == 7
    broken = [(r.locator, r.rule, r.reason) for r in rejects(readings) if r.rule == "malformed_record"]
    assert broken == [
        ("log!samples/1_epoch_1.json#", "malformed_record", "not valid JSON (cut off or damaged)"),
        ("log!samples/3_epoch_1.json#", "malformed_record", "damaged in the archive"),
    ]


def test_inspect_archives_that_are_torn_empty_or_written_twice(tmp_path):
    whole = (FIXTURES / "inspect_eval" / "popularity_dPiJ.eval").read_bytes()
    torn = tmp_path / "torn.eval"
    torn.write_bytes(whole[:9000])
    assert [claim.connector.name for claim in detect(torn)] == ["inspect_eval"]
    (reject,) = read(torn, "inspect_eval")
    assert (reject.rule, reject.reason) == ("malformed_record", "no zip archive, or one that is cut off")
    assert read(archive(tmp_path / "no.eval", {"header.json": "{}"}), "inspect_eval") == [
        Skip(reason="no_samples")
    ]
    twice = archive(tmp_path / "twice.eval", members(document("inspect_json/cases.json")))
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(twice, "a") as file:
        file.writestr(
            "samples/1_epoch_1.json", members(document("inspect_json/cases.json"))["samples/2_epoch_1.json"]
        )
    readings = read(twice, "inspect_eval")
    assert Skip(reason="superseded_member") in readings
    assert counted(readings) == 12


@pytest.mark.skipif(hasattr(zipfile, "ZIP_ZSTANDARD"), reason="this Python reads zstd")
def test_inspect_zstd_without_the_extra_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    path = with_method(archive(tmp_path / "z.eval", members(document("inspect_json/cases.json"))), 93)
    assert [claim.connector.name for claim in detect(path)] == ["inspect_eval"]
    (reject,) = read(path, "inspect_eval")
    assert (reject.rule, reject.records, reject.level) == ("missing_extra", 11, "record")
    assert 'pip install "logforge-rl[inspect]"' in reject.reason


def test_inspect_an_unknown_compression_is_a_reject_for_each_sample(tmp_path, monkeypatch):
    monkeypatch.setattr("logforge.connectors.benchmarks.inspect_log._learn_zstd", lambda: None)
    path = with_method(archive(tmp_path / "z.eval", members(document("inspect_json/cases.json"))), 97)
    readings = read(path, "inspect_eval")
    assert {r.reason for r in readings} == {"damaged in the archive"}
    assert counted(readings) == 11


def test_inspect_a_new_extra_makes_unread_archives_be_read_again(monkeypatch):
    monkeypatch.setattr("logforge.connectors.benchmarks.inspect_log._knows_zstd", lambda: False)
    monkeypatch.setattr("logforge.connectors.benchmarks.inspect_log.find_spec", lambda _: None)
    without = InspectEval().version
    monkeypatch.setattr("logforge.connectors.benchmarks.inspect_log.find_spec", lambda _: object())
    assert InspectEval().version != without


def test_inspect_zstd_with_the_extra(tmp_path):
    pytest.importorskip("inspect_ai.log")
    log = members(document("inspect_json/cases.json"))
    path = archive(tmp_path / "z.eval", log, zipfile.ZIP_ZSTANDARD)
    assert counted(read(path, "inspect_eval")) == 11


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damaged_archives_never_raise_and_count_each_member(tmp_path_factory, data):
    content = bytearray((FIXTURES / "inspect_eval" / "popularity_dPiJ.eval").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.eval"
    path.write_bytes(content)
    detect(path)
    readings = read(path, "inspect_eval")
    assert counted(readings) <= 10
    assert counted(readings) >= 1


# --- telling them apart -------------------------------------------------------------------------------------------

LOOK_ALIKES = {
    "openai_messages": {"messages": [{"role": "user", "content": "a"}], "samples": []},
    "a config": {"version": 2, "status": "ok", "eval": {"task": "x"}},
    "an evaluation summary": {"version": 2, "status": "success", "eval": "eval.json", "samples": []},
    "voice": {
        "id": "a",
        "task_id": "1",
        "ticks": [{}],
        "mode": "full_duplex",
        "termination_reason": "user_stop",
    },
    "simulations of another kind": {"info": {"x": 1}, "tasks": [], "simulations": [{"messages": []}]},
    "a suite without messages": {"suite_name": "banking", "user_task_id": "user_task_1"},
}


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_look_alikes_are_not_claimed(tmp_path, name):
    path = write(tmp_path / "x.json", LOOK_ALIKES[name])
    assert not {claim.connector.name for claim in detect(path)} & set(FORMATS)


def test_other_archives_are_not_claimed(tmp_path):
    for names in (["a.txt"], ["header.json"], ["samples/1.json"], ["header.json", "data/1.json"]):
        path = archive(tmp_path / "x.zip", dict.fromkeys(names, "{}"))
        assert not {claim.connector.name for claim in detect(path)} & set(FORMATS)


# --- the real logs ------------------------------------------------------------------------------------------------

shared = pytest.mark.skipif(not EXPECTED.is_file(), reason="the shared logs are not here")

DIFFERENCES = {
    ("inspect_json", "episodes"): "a sample of which no message can be kept is quarantined",
    ("inspect_json", "messages"): "results without a call are quarantined, and are no messages",
    ("inspect_json", "tool_results"): "results without a call are quarantined, and are no messages",
    (
        "tau_bench_fewshot",
        "tool_results",
    ): "the log lost the calls: what the tools said is kept as system messages",
}
"""Why a count differs from the independent one; docs/formats/harness.md has the same words."""

TOTALS: dict[str, dict[str, int]] = {
    "agentdojo": {
        "episodes": 13,
        "messages": 87,
        "tool_calls": 24,
        "tool_results": 24,
        "labelled": 13,
        "success": 13,
    },
    "inspect_eval": {"episodes": 11, "messages": 33, "labelled": 1},
    "inspect_json": {
        "episodes": 5,
        "messages": 22,
        "tool_calls": 4,
        "tool_results": 4,
        "labelled": 5,
        "success": 4,
    },
    "tau2_bench": {
        "episodes": 50,
        "messages": 1320,
        "tool_calls": 581,
        "tool_results": 581,
        "labelled": 50,
        "success": 28,
    },
    "tau_bench_fewshot": {"episodes": 19, "messages": 463},
}


def files(name: str) -> list[Path]:
    return sorted(path for path in (LOGS / name).rglob("*") if path.is_file())


def counts_of(path: Path, name: str) -> Counter[str]:
    return counts_in(episodes(read(path, name)))


@shared
@pytest.mark.parametrize(
    "path", [path for name in FORMATS for path in files(name)], ids=lambda path: path.name
)
def test_counts_agree_with_the_independent_ones(path):
    name = path.relative_to(LOGS).parts[0]
    expected = independent(path)
    if name == "tau_bench_fewshot":
        del expected["tool_results"]
    elif path.name == "log_tool_call_error.json":
        expected.clear()
    assert counts_of(path, name) == expected


@shared
@pytest.mark.parametrize("name", FORMATS)
def test_totals_and_their_differences_are_those_of_the_documentation(name):
    counted = ((independent(path), counts_of(path, name)) for path in files(name))
    assert totals_as_told("formats/harness.md", name, counted, DIFFERENCES) == TOTALS[name]


@shared
def test_the_eleven_results_without_a_call_are_eleven_quarantined_parts():
    readings = read(LOGS / "inspect_json" / "log_tool_call_error.json", "inspect_json")
    assert [(r.level, r.rule) for r in readings] == [("record", "no_message")] + [
        ("part", "orphan_result")
    ] * 11


@shared
def test_voice_simulations_are_not_claimed():
    path = LOGS / "unsupported" / "tau2_voice_ticks.json"
    assert detect(path) == []
    verdict = judge(path)
    assert (verdict.quarantined, verdict.rule) == (True, "unsupported_shape")


def test_a_voice_simulation_is_refused_in_words_that_say_what_it_is(tmp_path):
    verdict = judge(write(tmp_path / "x.json", LOOK_ALIKES["voice"]))
    assert (verdict.quarantined, verdict.rule) == (True, "unsupported_shape")
    assert "voice simulation" in verdict.reason
    assert judge(write(tmp_path / "y.json", {"ticks": [1]})).rule == "unknown_shape"
