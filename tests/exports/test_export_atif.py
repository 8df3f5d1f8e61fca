"""ATIF out and in again: the same messages, calls, results, rewards and outcome."""

from __future__ import annotations

import json
from math import fsum
from pathlib import Path

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from logforge.connectors.episodes.builder import Call, EpisodeBuilder
from logforge.connectors.records.base import Source
from logforge.connectors.trajectories.atif import Atif
from logforge.exports.atif import trajectory
from logforge.exports.pipeline import export
from logforge.ingestion.pipeline import ingest
from logforge.schemas.episode import Episode
from logforge.shards.sides import proposed
from logforge.store.store import Store
from support.made_episodes import episodes, finish, parallel_episode
from support.places import SAMPLES


def read_back(document, folder: Path) -> list:
    file = folder / "t.jsonl"
    file.write_text(json.dumps(document, ensure_ascii=False) + "\n", "utf-8")
    return list(Atif().read(Source(file, "t.jsonl")))


def said(episode: Episode):
    """What was said, by whom; a system's and a developer's word are one. Results stand with their calls."""
    roles = {"developer": "system"}
    return [(roles.get(m.role, m.role), m.content or "") for m in episode.messages if m.role != "tool"]


def done(episode: Episode):
    calls = [step for step in episode.steps if step.kind == "tool"]
    return [(s.action, json.loads(s.arguments), s.result) for s in calls if s.arguments_status != "invalid"]


def assert_equal(found: Episode, episode: Episode) -> None:
    assert said(found) == said(episode)
    assert done(found) == done(episode)
    assert [step.kind == "tool" for step in found.steps] == [step.kind == "tool" for step in episode.steps]
    earned = [fsum(step.logged_reward or 0 for step in one.steps) for one in (found, episode)]
    assert earned[0] == pytest.approx(earned[1])
    assert (found.success, found.score) == (episode.success, episode.score)
    assert found.ending == episode.ending
    assert found.ending_reason == episode.ending_reason or not episode.ending_reason
    thoughts = [
        [m.thought or None for m in one.messages if m.role == "assistant"] for one in (found, episode)
    ]
    assert thoughts[0] == thoughts[1]


@settings(deadline=None)
@given(episodes(), st.sampled_from([None, True, False]), st.none() | st.floats(0, 1))
def test_made_episodes_come_back(tmp_path_factory, episode, success, score):
    # what has neither text nor call is nothing that a reader could tell from a gap
    told = [episode.messages[step.position] for step in episode.steps if step.kind != "tool"]
    told += [message for message in episode.messages if message.role == "user"]
    assume(all(message.content for message in told))
    given_outcome = msgspec.structs.replace(episode, success=success, score=score)
    [found] = [
        item
        for item in read_back(trajectory(given_outcome, []), tmp_path_factory.mktemp("t"))
        if isinstance(item, Episode)
    ]
    assert_equal(found, given_outcome)


def test_rewards_of_steps_times_tokens_and_costs_come_back(tmp_path):
    builder = EpisodeBuilder()
    builder.message("user", "go", "x")
    more = {
        "tokens_in": 7,
        "tokens_out": 3,
        "cost_usd": 0.25,
        "created_at": 1_700_000_000_000_001,
        "model": "m",
    }
    builder.turn("", [Call("a", {"k": [1, None]}, "1")], "x", reward=0.5, thought="hm", **more)
    builder.result("1", "fine", "x")
    builder.turn("done", [], "x", reward=-1.0)
    episode = finish(builder, success=True, score=0.75, task_id="t7", tools=["a", "b"])
    document = trajectory(episode, [])
    [found] = read_back(document, tmp_path)
    assert [step.logged_reward for step in found.steps] == [0.5, -1.0]
    message = found.messages[1]
    assert (message.tokens_in, message.tokens_out, message.cost_usd, message.model) == (7, 3, 0.25, "m")
    assert message.created_at == 1_700_000_000_000_001
    assert (found.task_id, found.cost_usd) == ("t7", 0.25)
    assert document["final_metrics"] == {
        "total_prompt_tokens": 7,
        "total_completion_tokens": 3,
        "total_cost_usd": 0.25,
        "total_steps": 3,
    }


def test_what_was_proposed_comes_back_and_a_mended_name_is_no_proposal(tmp_path):
    builder = EpisodeBuilder()
    builder.message("user", "go", "x")
    calls = [Call("look", {"k": 1}, "1", None, "erase"), Call("Look", {}, "2"), Call("look", {}, "3")]
    builder.turn("", calls, "x")
    for number in (1, 2, 3):
        builder.result(str(number), "seen", "x")
    episode = finish(builder, tools=["look", "erase"])
    assert [step.proposed_action for step in episode.steps] == ["erase", "Look", None]
    document = trajectory(episode, [])
    [found] = read_back(document, tmp_path)
    assert [(step.action, proposed(step)) for step in found.steps] == [
        *(("look", "erase"), ("look", None), ("look", None))
    ]
    told = [call["extra"] for call in document["steps"][1]["tool_calls"]]
    assert [(extra.get("proposed_action"), extra.get("called")) for extra in told] == [
        *(("erase", None), (None, "Look"), (None, None))
    ]


def test_a_cut_off_comes_back_with_its_reason(tmp_path):
    builder = EpisodeBuilder()
    builder.message("user", "go", "x")
    builder.turn("done", [], "x")
    cut = msgspec.structs.replace(finish(builder), ending="truncated", ending_reason="step limit reached")
    [found] = read_back(trajectory(cut, []), tmp_path)
    assert (found.ending, found.ending_reason) == ("truncated", "step limit reached")
    told = trajectory(cut, []) | {"extra": {"ending": "blue", "ending_reason": "moon"}}
    [other] = read_back(told, tmp_path)
    assert other.ending == "terminal"


def test_one_result_for_all_calls_of_a_turn_stays_one(tmp_path):
    builder = EpisodeBuilder()
    builder.message("user", "go", "x")
    builder.turn("", [Call("a", {}, "1"), Call("b", {}, "2")], "x")
    builder.result("1", "both", "x")
    builder.also_answers("2")
    [found] = read_back(trajectory(finish(builder), []), tmp_path)
    assert [step.result for step in found.steps] == ["both", "both"]
    assert [message.role for message in found.messages] == ["user", "assistant", "tool"]


def test_history_is_no_decision_when_it_comes_back(tmp_path):
    builder = EpisodeBuilder()
    builder.message("user", "hi", "x")
    builder.message("assistant", "said before", "x")
    builder.message("user", "and now?", "x")
    builder.turn("now this", [], "x")
    [found] = read_back(trajectory(finish(builder), []), tmp_path)
    assert len(found.steps) == 1
    assert [message.content for message in found.messages] == ["hi", "said before", "and now?", "now this"]


def test_the_sample_logs_come_back(exports_home, tmp_path):
    with Store(tmp_path / "samples.duckdb") as store:
        ingest(store, [SAMPLES], workers=1)
        before = list(store.episodes())
    assert before
    for episode in before:
        [found] = read_back(trajectory(episode, []), tmp_path)
        assert_equal(found, episode)


def test_an_export_is_ingested_like_any_log(exports_home, tmp_path):
    report = export(exports_home / "d", "atif", tmp_path / "a.jsonl", store=exports_home / "store.duckdb")
    with Store(tmp_path / "again.duckdb") as store:
        ingest(store, [tmp_path / "a.jsonl"], workers=1)
        found = {episode.native_id: episode for episode in store.episodes()}
        assert store.sql("SELECT records, kept FROM sources").row(0) == (report.rows, report.rows)
    assert len(found) == report.rows
    with Store(exports_home / "store.duckdb", read_only=True) as store:
        for episode in store.episodes(found):
            if episode.native_id not in ("damaged",):
                assert_equal(found[episode.episode_id], episode)
            assert found[episode.episode_id].tools == episode.tools


def test_documents_are_valid_by_the_models_of_atif(exports_home, tmp_path):
    atif = pytest.importorskip("atif", reason="pip install atif (the format's pydantic models)")
    file = export(exports_home / "d", "atif", tmp_path / "a.jsonl", store=exports_home / "store.duckdb").path
    for line in file.read_text("utf-8").split("\n")[:-1]:
        held = atif.Trajectory.model_validate(json.loads(line))
        assert held.schema_version == "ATIF-v1.8"
    for episode in (parallel_episode(), parallel_episode(success=False, score=0.0)):
        atif.Trajectory.model_validate(trajectory(episode, []))
