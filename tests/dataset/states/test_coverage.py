"""The share of calls that the thought in their state names."""

from __future__ import annotations

import json

from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.dataset.states.coverage import ThoughtLeak, thought_leak
from logforge.forgetting.pipeline import forget
from logforge.ingestion.pipeline import ingest
from logforge.shards.card import CARD
from logforge.shards.reader import read_manifest
from logforge.store.store import Store
from support.made_calls import SPEC, call


def test_a_thought_counts_for_the_calls_after_it_and_only_as_a_whole_word(tmp_path):
    turns = [
        *call("find", "find it first, then pay", 0),
        *call("pay", "refinding is no use", 1),
        *call("find", None, 2),
        *call("pay", "Pay.", 3),
        *call("PAY", None, 4),
    ]
    rows = [{"id": "a", "success": True, "messages": [{"role": "user", "content": "hello"}, *turns]}]
    (tmp_path / "log.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    (tmp_path / "reward.yaml").write_text(SPEC)
    with Store(tmp_path / "s.duckdb") as store:
        ingest(store, [tmp_path / "log.jsonl"])
        config = BuildConfig(encoder="hashing", text_size=4, fractions=(1.0, 0.0, 0.0))
        report = build_dataset(store, tmp_path / "reward.yaml", out=tmp_path, config=config)
        found = thought_leak(store.con, "default")
        assert thought_leak(store.con, "another") == ThoughtLeak(0, 0)
    assert found == ThoughtLeak(calls=4, named=2)
    assert report.thoughts == found
    assert "names the tool in 2 of 4 (50%)" in report.render()
    assert report.as_dict()["thoughts"] == {"calls": 4, "named": 2, "share": 0.5}
    assert read_manifest(tmp_path / "default").thoughts == {"calls": 4, "named": 2}
    assert "names its tool in 2 of 4 (50%)" in (tmp_path / "default" / CARD).read_text("utf-8")


def test_what_is_forgotten_counts_no_more(tmp_path):
    rows = [
        {"id": name, "success": True, "messages": [{"role": "user", "content": f"hello {name}"}, *turns]}
        for name, turns in (
            ("a", [*call("find", "then pay", 0), *call("pay", None, 1)]),
            ("b", [*call("find", "hm", 0), *call("pay", None, 1)]),
        )
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    (tmp_path / "reward.yaml").write_text(SPEC)
    with Store(tmp_path / "s.duckdb") as store:
        ingest(store, [tmp_path / "log.jsonl"])
        config = BuildConfig(encoder="hashing", text_size=4, fractions=(1.0, 0.0, 0.0), near_threshold=1)
        build_dataset(store, tmp_path / "reward.yaml", out=tmp_path, config=config)
        assert read_manifest(tmp_path / "default").thoughts == {"calls": 2, "named": 1}
        gone = store.sql("SELECT episode_id FROM episodes WHERE native_id = 'a'").item()
        forget(store, episode=gone)
    assert read_manifest(tmp_path / "default").thoughts == {"calls": 1, "named": 0}


def test_no_thoughts_are_not_told():
    assert ThoughtLeak(0, 0).told() == ""
    assert ThoughtLeak(0, 0).as_dict()["share"] is None
