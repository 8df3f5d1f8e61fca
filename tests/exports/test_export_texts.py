"""Forms that hold texts: conversations, prompts and completions, labels, weights and preferences are what the log says."""

from __future__ import annotations

import json
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.connectors.episodes.builder import Call, EpisodeBuilder
from logforge.connectors.episodes.tool_names import bare_name, tool_action
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.exports.catalogue import Options
from logforge.exports.chat import answer_of, chat_of, prompt_flaw, turns_of
from logforge.exports.contrasts import pairs_of
from logforge.exports.pipeline import export
from logforge.exports.weights import Keep, weighted
from logforge.ingestion.pipeline import ingest
from logforge.schemas.errors import Mismatch, UnknownName, UsageError
from logforge.shards.reader import load_shards
from logforge.store.store import Store
from support.made_episodes import episodes, finish, parallel_episode
from support.made_exports import SPEC, trial


@pytest.fixture
def lines(exports_home, tmp_path):
    """Writes a format and gives its rows."""

    def write(name, **options):
        out = tmp_path / f"{name}.jsonl"
        store = exports_home / "store.duckdb"
        export(exports_home / "d", name, out, store=store, options=Options(**options))
        return [json.loads(line) for line in out.read_text("utf-8").split("\n")[:-1]]

    return write


@pytest.fixture
def named(exports_home):
    """Episodes by the log's id."""
    with Store(exports_home / "store.duckdb", read_only=True) as store:
        yield {episode.native_id: episode for episode in store.episodes()}


# conversations


def test_a_conversation_has_calls_with_ids_of_their_own_and_results_that_name_them():
    chat = chat_of(parallel_episode())
    assert [message["role"] for message in chat] == [
        *("user", "assistant", "tool", "tool", "assistant", "tool", "assistant")
    ]
    assert chat[1]["reasoning_content"] == "two at once"
    assert [call["id"] for call in chat[1]["tool_calls"]] == ["call_0", "call_1"]
    assert chat[1]["tool_calls"][0]["function"] == {"name": "find", "arguments": {"n": 2}}
    assert [(m["tool_call_id"], m["name"]) for m in chat if m["role"] == "tool"] == [
        *(("call_1", "book"), ("call_0", "find"), ("call_2", "book"))
    ]


@given(episodes())
def test_every_call_and_every_answer_of_an_episode_is_said_once(episode):
    chat = chat_of(episode)
    calls = [call["id"] for message in chat for call in message.get("tool_calls", ())]
    answers = [message["tool_call_id"] for message in chat if message["role"] == "tool"]
    tools = [step for step in episode.steps if step.kind == "tool"]
    assert calls == [f"call_{step.step}" for step in tools]
    assert sorted(answers) == sorted(f"call_{s.step}" for s in tools if s.result_position is not None)
    said = [message["content"] for message in chat if message["role"] in ("user", "assistant")]
    assert said == [m.content or "" for m in episode.messages if m.role in ("user", "assistant")]


@given(episodes())
def test_a_prompt_holds_nothing_that_the_decision_could_not_know(episode):
    for turn in turns_of(episode):
        prompt = chat_of(episode, turn.position)
        whole = chat_of(episode)
        assert prompt == whole[: len(prompt)]
        assert answer_of(episode, turn) == whole[len(prompt)]


def test_part_of_a_parallel_turn_has_the_calls_up_to_there():
    episode = parallel_episode()
    turn = turns_of(episode)[0]
    assert [call["id"] for call in answer_of(episode, turn, 0)["tool_calls"]] == ["call_0"]
    assert len(answer_of(episode, turn)["tool_calls"]) == 2


def test_a_result_that_answers_two_calls_is_said_for_each():
    builder = EpisodeBuilder()
    builder.turn("", [Call("a", {}, "1"), Call("b", [1], "2")], "x")
    builder.result("1", "both", "x")
    builder.also_answers("2")
    chat = chat_of(finish(builder))
    assert [message.get("tool_call_id") for message in chat] == [None, "call_0", "call_1"]
    assert chat[0]["tool_calls"][1]["function"]["arguments"] == {"arguments": [1]}


@pytest.mark.parametrize("name", ["search", "respond", "tool:respond", "clarify", "tool:x", "<invalid>"])
def test_tools_with_reserved_names_get_them_back(name):
    assert bare_name(tool_action(name)) == name


def test_what_no_template_goes_on_from_is_told():
    call = {"role": "assistant", "content": "", "tool_calls": [{}]}
    assert prompt_flaw([]) == "no prompt"
    assert "system" in prompt_flaw([{"role": "system", "content": "x"}])
    assert "unanswered" in prompt_flaw([call])
    assert prompt_flaw([call, {"role": "tool", "content": ""}]) is None
    assert prompt_flaw([{"role": "assistant", "content": "so"}]) is None


# TRL's rows


def test_sft_rows_are_whole_episodes_with_their_tools(lines, named):
    rows = {row["episode_id"]: row for row in lines("trl-sft")}
    for name in ("parallel", "unjudged", "reserved", "damaged"):
        episode = named[name]
        assert rows[episode.episode_id]["messages"] == chat_of(episode)
        assert rows[episode.episode_id]["success"] == episode.success
    row = rows[named["parallel"].episode_id]
    assert row["messages"][0] == {"role": "system", "content": "be brief"}
    assert "\u2028" in json.dumps(row, ensure_ascii=False)
    tools = {tool["function"]["name"]: tool["function"]["parameters"] for tool in json.loads(row["tools"])}
    assert tools["lookup"]["properties"] == {
        "key": {"type": "array"},
        "n": {"type": "integer"},
        "q": {"type": "string"},
    }
    assert "respond" in tools
    offered = json.loads(rows[named["made up"].episode_id]["tools"])
    assert [tool["function"]["name"] for tool in offered] == ["lookup", "search"]


def test_sft_of_successes_alone(lines, named):
    rows = lines("trl-sft", successes=True)
    assert len(rows) == 13
    assert {row["success"] for row in rows} == {True}


def test_kto_rows_are_turns_with_their_episodes_outcome(lines, named):
    rows = lines("trl-kto")
    by_id = {episode.episode_id: episode for episode in named.values()}
    assert len({(row["episode_id"], row["steps"][0]) for row in rows}) == len(rows)
    for row in rows:
        episode = by_id[row["episode_id"]]
        [turn] = [turn for turn in turns_of(episode) if turn.steps[0].step == row["steps"][0]]
        assert row["label"] is episode.success
        assert row["prompt"] == chat_of(episode, turn.position)
        assert row["completion"] == [answer_of(episode, turn)]
        assert row["steps"] == [step.step for step in turn.steps]
    ids = {row["episode_id"] for row in rows}
    assert named["unjudged"].episode_id not in ids
    assert named["damaged"].episode_id not in ids
    # the hallucinated call is nothing to learn, as a good or as a bad example
    assert named["made up"].episode_id not in ids
    [parallel] = [
        row for row in rows if row["episode_id"] == named["parallel"].episode_id and row["steps"] == [0, 1]
    ]
    assert len(parallel["completion"][0]["tool_calls"]) == 2


def test_dpo_rows_are_the_certain_contrasts_with_both_sides_in_the_split(lines, named, exports_home):
    [row] = lines("trl-dpo")
    assert row["prompt"] == [{"role": "user", "content": "please do often"}]
    for side, tool in (("chosen", "search"), ("rejected", "lookup")):
        identifier, step = row[f"{side}_id"].split(":")
        [episode] = [e for e in named.values() if e.episode_id == identifier]
        assert row[side] == [answer_of(episode, turns_of(episode)[int(step)])]
        assert row[side][0]["tool_calls"][0]["function"]["name"] == tool == row[f"{side}_action"]
    assert row["gap"] == pytest.approx(8.0)
    assert row["interval"][0] > 0
    with Store(exports_home / "store.duckdb", read_only=True) as store:
        found = pairs_of(store, "d", "train")
        sides = [row["chosen_id"].split(":")[0], row["rejected_id"].split(":")[0]]
        splits = store.con.sql(
            "SELECT DISTINCT split FROM splits WHERE episode_id IN (SELECT unnest(?))", params=[sides]
        )
        assert splits.fetchall() == [("train",)]
    assert len(lines("trl-dpo", uncertain=True)) == found.height


# weights


def test_weights_by_return_are_those_of_turns_that_earned_more_than_average(lines, exports_home):
    rows = lines("weighted-sft")
    with Store(exports_home / "store.duckdb", read_only=True) as store:
        returns = store.sql(
            "SELECT t.episode_id, s.position, min(step) AS step, avg(return_to_go) AS amount FROM transitions t "
            "JOIN steps s USING (episode_id, step) WHERE split = 'train' GROUP BY ALL ORDER BY ALL"
        )
    amounts = dict(zip(returns.select("episode_id", "step").iter_rows(), returns["amount"], strict=True))
    mean = float(np.mean(list(amounts.values())))
    found = {(row["episode_id"], row["steps"][0]): row["weight"] for row in rows}
    better = {key: amount - mean for key, amount in amounts.items() if amount > mean}
    assert set(found) <= set(better)
    ratios = {round(found[key] / better[key], 9) for key in found}
    assert len(ratios) == 1
    assert np.mean(list(better.values())) * ratios.pop() == pytest.approx(1.0)


def test_weights_by_credit_keep_its_sign(lines, exports_home, tmp_path):
    folder = tmp_path / "copy"
    folder.mkdir()
    (folder / "store.duckdb").write_bytes((exports_home / "store.duckdb").read_bytes())
    shard = load_shards(exports_home / "d")
    with Store(folder / "store.duckdb") as store:
        steps = store.sql("SELECT episode_id, step FROM transitions WHERE split = 'train' ORDER BY ALL")
        credit = pl.Series([float(row % 5 - 3) for row in range(steps.height)])
        about = {
            "dataset": "d",
            "hash": shard.manifest.hash,
            "split": "train",
            "method": "gae",
            "settings": "{}",
        }
        told = {name: pl.lit(value, pl.String) for name, value in about.items()}
        store.insert("credit", steps.with_columns(credit=credit, policy=pl.lit("bc"), **told))
    out = tmp_path / "w.jsonl"
    options = Options(weigh="gae")
    export(exports_home / "d", "weighted-sft", out, store=folder / "store.duckdb", options=options)
    given = {(e, s): c for e, s, c in zip(steps["episode_id"], steps["step"], credit, strict=True)}
    for row in map(json.loads, out.read_text("utf-8").split("\n")[:-1]):
        assert np.mean([given[row["episode_id"], step] for step in row["steps"]]) > 0
    with pytest.raises(UnknownName, match="valid: return, counterfactual, gae"):
        export(
            exports_home / "d",
            "weighted-sft",
            out,
            store=folder / "store.duckdb",
            options=Options(weigh="td"),
        )
    with Store(folder / "store.duckdb") as store:
        store.con.execute("INSERT INTO credit SELECT * REPLACE ('iql' AS policy) FROM credit")
    with pytest.raises(UsageError, match="2 credits by gae"):
        export(exports_home / "d", "weighted-sft", out, store=folder / "store.duckdb", options=options)


@pytest.mark.parametrize(
    ("name", "options", "instead"),
    [("weighted-sft", {"weigh": "gae"}, "; or --weigh return"), ("credit-text", {"credit": "gae"}, "")],
)
def test_credit_that_is_not_there_names_the_command_that_makes_it(
    exports_home, tmp_path, name, options, instead
):
    (tmp_path / "store.duckdb").write_bytes((exports_home / "store.duckdb").read_bytes())
    with Store(tmp_path / "store.duckdb") as store:
        store.con.execute("DELETE FROM credit")
    out, chosen = tmp_path / "x.jsonl", Options(**options)
    with pytest.raises(UsageError, match=f"logforge credit RUN --split train --method gae{instead}$"):
        export(exports_home / "d", name, out, store=tmp_path / "store.duckdb", options=chosen)


@given(
    st.lists(st.floats(-30, 30).map(lambda score: round(score, 6)), min_size=1, max_size=40),
    st.floats(0.01, 1),
)
def test_laws_of_weights(values, share):
    scores = np.array(values)
    kept, weights = weighted(scores, Keep("positive"))
    assert np.array_equal(kept, scores > 0)
    for found in (weights, weighted(scores, Keep("all"))[1]):
        assert not len(found) or (found.mean() == pytest.approx(1) and found.min() > 0)
    kept, weights = weighted(scores, Keep("top", share))
    assert kept.sum() >= math.ceil(share * len(scores))
    assert not len(scores[~kept]) or scores[~kept].max() < scores[kept].min()
    assert set(weights) == {1.0}


@pytest.mark.parametrize("text", ["top=0", "top=2", "top=x", "top=nan"])
def test_shares_that_are_none_are_refused(text):
    with pytest.raises(UsageError, match="share"):
        Keep.parse(text)
    with pytest.raises(UnknownName, match="positive, all, top=SHARE"):
        Keep.parse("best")
    assert Keep.parse("top=0.2") == Keep("top", 0.2)


# what all of them need


def test_texts_come_from_the_store_that_holds_this_build(exports_home, tmp_path):
    with Store(tmp_path / "other.duckdb"):
        pass
    with pytest.raises(Mismatch, match="no such dataset"):
        export(exports_home / "d", "trl-sft", tmp_path / "x.jsonl", store=tmp_path / "other.duckdb")
    assert not (tmp_path / "x.jsonl").exists()


def test_nothing_to_write_is_refused_with_the_reasons(exports_home, tmp_path, monkeypatch):
    monkeypatch.setattr("logforge.exports.turns.weights_of", lambda job: {})
    with pytest.raises(UsageError, match="not among those kept"):
        export(exports_home / "d", "weighted-sft", tmp_path / "x.jsonl", store=exports_home / "store.duckdb")
    assert not (tmp_path / "x.jsonl").exists()


def test_a_split_without_contrasts_is_told_what_makes_them(tmp_path):
    tasks = [trial(task, "search", 0, True) for task in ("one", "two", "three", "four", "five", "six")]
    (tmp_path / "logs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in tasks))
    (tmp_path / "reward.yaml").write_text(SPEC)
    with Store(tmp_path / "store.duckdb") as store:
        ingest(store, [tmp_path / "logs.jsonl"], workers=1)
        build_dataset(
            store, tmp_path / "reward.yaml", name="d", out=tmp_path, config=BuildConfig(encoder="hashing")
        )
    with pytest.raises(UsageError, match="train of d has no contrast") as caught:
        export(tmp_path / "d", "trl-dpo", tmp_path / "x.jsonl", store=tmp_path / "store.duckdb")
    assert "two actions in one state" in caught.value.remedy
    assert not (tmp_path / "x.jsonl").exists()
