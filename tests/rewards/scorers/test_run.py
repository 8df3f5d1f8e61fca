"""Running scorers: each text once, where it can pay, kept in the store, and forgotten with its episode."""

import json
from collections import Counter
from typing import ClassVar

import pytest

from logforge.core.frames import tables_of
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.ingestion.pipeline import ingest
from logforge.rewards.model import RewardModel
from logforge.rewards.pipeline import score
from logforge.rewards.scorers.base import Ready, Score, Scorer
from logforge.rewards.scorers.inputs import every_text
from logforge.rewards.scorers.run import ready_scorers, run_scorers, scorer_record
from support.made_scores import dialogue, results, scored, spec_of


class Counting(Scorer):
    """Gives the share of capitals, and counts whom it was asked about."""

    name = "counting"
    text: str = "said"
    fail_at: int = -1

    neutral = frozenset({"fail_at"})
    asked: ClassVar[Counter[str]] = Counter()

    def ready(self, resources):
        def give(items):
            for index, (text,) in enumerate(items):
                if index == self.fail_at:
                    raise KeyboardInterrupt
                Counting.asked[text] += 1
                yield index, Score(sum(map(str.isupper, text)) / len(text))

        return Ready(self.version(), give, kept_together=2)


@pytest.fixture
def counting(monkeypatch):
    """A scorer that counts its work."""
    monkeypatch.setattr("logforge.rewards.scorers.registry.registry", lambda: {"counting": Counting})
    Counting.asked.clear()
    return Counting.asked


def test_only_steps_that_can_pay_are_scored(store, counting):
    episodes = [
        dialogue("a", answer="YES", first="no"),
        dialogue("b", answer="NO", first="yes", ending="truncated"),
    ]
    assert scored(store, "counting", episodes, when="kind = 'respond'") == [(1.0, None), (1.0, None)]
    assert set(counting) == {"YES", "NO"}
    assert scored(store, "counting", episodes, at="terminal") == [(1.0, None)]
    assert scored(store, "counting", episodes, once=True) == [(0.0, None), (0.0, None)]
    assert set(counting) == {"YES", "NO", "no", "yes"}
    assert max(counting.values()) == 1


def test_a_text_is_scored_once_in_all_runs(store, counting):
    episodes = [dialogue(name, answer="SAME", first="SAME") for name in "abc"]
    first = scored(store, "counting", episodes)
    assert counting == {"SAME": 1}
    assert scored(store, "counting", episodes) == first
    assert counting == {"SAME": 1}
    assert len(results(store)) == 1


def test_a_killed_run_goes_on_where_it_was(store, counting):
    episodes = [dialogue(f"e{n}", answer=f"A{n}", first=f"b{n}") for n in range(4)]
    with pytest.raises(KeyboardInterrupt):
        scored(store, {"name": "counting", "fail_at": 5}, episodes)
    assert len(results(store)) == 5, "the last ones too, though fewer than are usually written together"
    whole = scored(store, "counting", episodes)
    assert max(counting.values()) == 1
    assert len(whole) == 8
    assert all(reason is None for _, reason in whole)


def test_a_score_is_part_of_the_reward(store, counting):
    spec = spec_of("counting", value=-2, when="kind = 'respond'", clip=[-1.5, None])
    episodes = [dialogue("a", answer="Yes!"), dialogue("b", answer="YES")]
    frame = score(spec, tables_of(episodes), None, run_scorers(spec, tables_of(episodes), store.con))
    assert frame["reward"].to_list() == [0.0, -0.5, 0.0, -1.5]


def test_a_score_that_is_missing_makes_the_reward_null_unless_the_term_is_optional(store):
    episodes = [dialogue()]
    for optional, reward, reason in ((False, None, "t: missing reference"), (True, 0.0, None)):
        spec = spec_of("rouge_l", at="end", optional=optional)
        frame = score(spec, tables_of(episodes), None, run_scorers(spec, tables_of(episodes), store.con))
        assert frame.select("reward", "null_reason").row(1) == (reward, reason)


def test_texts_are_those_of_the_step_and_of_the_episode(store):
    from logforge.rewards.scorers.inputs import INPUTS, texts
    from logforge.schemas.reward import Detectors, Term

    tables = tables_of([dialogue(reference="42", metadata='{"a":1}')])
    frame = texts(Term(), list(INPUTS), tables, Detectors())
    whole = {
        "task": "how many?", "reference": "42", "answer": "It is 42.", "user_words": "thanks", "results": "found 42",
        "metadata": '{"a":1}',
        "transcript": "user: how many?\nassistant: let me see\nassistant calls find {\"n\":1}\ntool: found 42\n"
        "user: thanks\nassistant: It is 42.",
    }  # fmt: skip
    assert frame.to_dicts() == [
        {**whole, "episode_id": frame["episode_id"][0], "step": 0, "said": "let me see", "thought": "let me look",
         "arguments": '{"n":1}', "result": "found 42", "user_reply": "thanks"},
        {**whole, "episode_id": frame["episode_id"][0], "step": 1, "said": "It is 42.", "thought": "",
         "arguments": "{}", "result": "", "user_reply": ""},
    ]  # fmt: skip
    assert {"let me see", "42", '{"a":1}', whole["transcript"]} <= set(every_text(tables))


def test_scorers_that_learn_do_so_from_the_train_split(store):
    episodes = [dialogue(f"e{n}", answer=f"answer {n} is fine", first=f"step {n}") for n in range(30)]
    spec = spec_of({"name": "perplexity"}, when="said <> ''")
    train = {episode.episode_id: f"group {n}" for n, episode in enumerate(episodes[:20])}
    model = RewardModel.fit(spec, episodes, train, store.con)
    assert all(reward > 0 for reward in model.score(episodes)["reward"])
    other = RewardModel.fit(spec, episodes, {episodes[0].episode_id: "group 0"}, store.con)
    (record,) = other.record()["scorers"]
    assert record["unready"] == "2 texts to learn from, 20 needed"
    assert record["version"] != model.record()["scorers"][0]["version"]
    assert set(other.score(episodes)["null_reason"]) == {"t: 2 texts to learn from, 20 needed"}


@pytest.fixture
def logs(tmp_path, conversation, write_jsonl):
    """Twelve conversations with references."""
    rows = [conversation(f"item {n}", reference=f"item {n} is found", user=f"u{n}") for n in range(12)]
    return write_jsonl(tmp_path / "logs" / "a.jsonl", rows)


def test_a_second_build_scores_and_embeds_nothing(store, logs, tmp_path, monkeypatch):
    from logforge.texts.hashing import HashingEncoder

    ingest(store, [logs.parent])
    spec = spec_of(
        {"name": "similarity", "text": "said", "reference": "task", "encoder": "hashing"}, when="said <> ''"
    )
    config = BuildConfig(encoder="hashing", text_size=4)
    first = build_dataset(store, spec, name="a", out=tmp_path / "d", config=config)
    rows = results(store)
    assert len(rows) == 12

    def never(*_):
        raise AssertionError("nothing is to be embedded")

    monkeypatch.setattr(HashingEncoder, "encode", never)
    second = build_dataset(store, spec, name="a", out=tmp_path / "d", config=config)
    assert results(store) == rows
    assert second.as_dict()["hash"] == first.as_dict()["hash"]
    manifest = json.loads((tmp_path / "d" / "a" / "manifest.json").read_text())
    (record,) = manifest["reward"]["scorers"]
    assert record["scorer"] == "similarity"
    assert record["version"] == rows[0][1]
    assert record["parameters"] == {"text": "said", "reference": "task", "encoder": "hashing"}


def test_forgotten_texts_lose_their_scores_and_others_keep_theirs(store, logs):
    from logforge.forgetting.pipeline import forget

    ingest(store, [logs.parent])
    tables = store.tables()
    for call, at in (
        ({"name": "rouge_l", "text": "answer", "reference": "task"}, "end"),
        ({"name": "chrf", "text": "transcript", "reference": "task"}, "end"),
    ):
        run_scorers(spec_of(call, at=at), tables, store.con)
    before = results(store)
    gone = store.con.sql("SELECT episode_id FROM episodes WHERE task LIKE '%item 7%'").fetchall()[0][0]
    forget(store, episode=gone)
    after = results(store)
    assert len(before) == 24
    assert len(after) == 22
    assert set(map(str, after)) < set(map(str, before))


def test_a_store_opened_for_reading_is_scored_and_left_as_it_is(store):
    from logforge.store.store import Store

    path = store.path
    store.close()
    with Store(path, read_only=True) as reading:
        assert scored(reading, "exact_match", [dialogue(answer="YES", reference="yes")], at="end") == [
            (1.0, None)
        ]
        call = {"name": "similarity", "reference": "task", "encoder": "hashing"}
        ((value, _),) = scored(reading, call, [dialogue(answer="how many?")], at="end")
        assert value == 1
        assert results(reading) == []


def test_the_record_names_what_decides_the_values(store):
    spec = spec_of({"name": "rouge_l", "text": "said"})
    ready = ready_scorers(spec, store.con)
    assert scorer_record(spec, ready, store.con) == [
        {
            "term": "t",
            "scorer": "rouge_l",
            "parameters": {"text": "said", "reference": "reference"},
            "version": ready["t"].whole.version,
        }
    ]
