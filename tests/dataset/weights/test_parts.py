"""Weights are exact products of documented parts, follow from train alone, and reach rows, copies and arrays."""

import dataclasses
import math
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.checks.pipeline import check_dataset
from logforge.core.frames import POLARS_TYPES
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.dataset.quality.transitions import in_order_of_names
from logforge.dataset.weights.parts import Weights, parts_told, weigh
from logforge.ingestion.pipeline import ingest
from logforge.schemas.errors import UsageError
from logforge.shards.reader import load_shards
from logforge.store.store import Store

SPEC = "gamma: 0.9\nterms: {success: {when: success, value: 10, at: terminal}}\n"
START = datetime(2026, 1, 1)


def called(name, *results, day=None, **more):
    """A conversation of calls of `poll`, one for each result."""
    stamp = {} if day is None else {"timestamp": (START + timedelta(days=day)).isoformat() + "Z"}
    messages = [{"role": "user", "content": f"please finish the {name}", **stamp}]
    for number, result in enumerate(results):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "poll", "arguments": "{}"}}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": result},
        ]
    messages.append({"role": "assistant", "content": f"the {name} is finished"})
    return {"id": name, "task_id": name, "success": True, "messages": messages, **more}


@pytest.fixture
def home(tmp_path, write_jsonl):
    """Twelve busy episodes, one a day, and two lazy ones that hear the same thing over and over."""
    busy = [
        called(f"job {word}", f"{word} begun", f"{word} done", day=n) for n, word in enumerate("abcdefghijkl")
    ]
    lazy = [called(f"idle {word}", *["still waiting"] * 5, day=11, success=False) for word in "xy"]
    write_jsonl(tmp_path / "logs.jsonl", [*busy, *lazy])
    (tmp_path / "reward.yaml").write_text(SPEC)
    with Store(tmp_path / "store.duckdb") as store:
        ingest(store, [tmp_path / "logs.jsonl"], workers=1)
    return tmp_path


def build(home, weights=None, fractions=(1.0, 0.0, 0.0), **more):
    config = BuildConfig(
        encoder="hashing",
        text_size=4,
        near_threshold=1,
        fractions=fractions,
        weights=weights or Weights(),
        **more,
    )
    with Store(home / "store.duckdb") as store:
        report = build_dataset(store, home / "reward.yaml", name="d", out=home / "datasets", config=config)
        check_dataset(store, "d")
        rows = store.con.sql(
            "SELECT coalesce(e.native_id, 'copy') AS name, t.* FROM transitions t LEFT JOIN episodes e USING (episode_id) "
            "ORDER BY t.split, t.episode_id, t.step"
        ).pl()
    return report, rows.cast({"weight_parts": POLARS_TYPES["MAP(VARCHAR, DOUBLE)"]})


def weights_of(rows, name):
    return rows.filter(pl.col("name") == name).sort("step")["weight"].to_list()


def ids(home):
    with Store(home / "store.duckdb") as store:
        return dict(store.con.sql("SELECT native_id, episode_id FROM episodes").fetchall())


def test_by_default_orderly_rows_weigh_one_and_bear_no_part(home):
    report, rows = build(home)
    assert set(rows["weight"]) == {1.0}
    assert report.weight_parts == []


def test_planted_lazy_trajectories_weigh_less_than_one(home):
    report, rows = build(home, Weights(no_progress=0.5, lazy_episode=0.25))
    for name in ("idle x", "idle y"):
        first, *waiting, answer = weights_of(rows, name)
        assert first == answer == 0.25
        assert min(waiting) == 0.125
    assert {weight for name in "abcdefghijkl" for weight in weights_of(rows, f"job {name}")} == {1.0}
    told = {part["part"]: part["rows"] for part in report.weight_parts}
    assert told["lazy_episode"] == 12
    assert 0 < told["no_progress"] < 12


def test_recency_halves_with_every_half_life(home):
    _, rows = build(home, Weights(half_life_days=2.0))
    assert set(weights_of(rows, "job l")) == {1.0}
    assert set(weights_of(rows, "job j")) == {0.5}
    assert set(weights_of(rows, "job a")) == {0.5 ** (11 / 2)}


def test_recency_refuses_episodes_without_a_date(home, write_jsonl):
    write_jsonl(home / "more.jsonl", [called("job undated", "begun")])
    with Store(home / "store.duckdb") as store:
        ingest(store, [home / "more.jsonl"], workers=1)
    with pytest.raises(UsageError, match="1 of 15 train episodes have no start time"):
        build(home, Weights(half_life_days=2.0))


def test_demonstrations_are_weighed_up_by_their_source_kind(home):
    with Store(home / "store.duckdb") as store:
        store.con.execute("UPDATE episodes SET source_kind = 'human_demo' WHERE native_id = 'job a'")
    _, rows = build(home, Weights(demonstration=3.0))
    assert set(weights_of(rows, "job a")) == {3.0}
    assert set(weights_of(rows, "job b")) == {1.0}


def test_named_episodes_bear_their_factor_and_unknown_ones_are_counted(home):
    known = ids(home)
    report, rows = build(home, Weights(episodes={known["job c"]: 2.0, "nobody": 5.0}, lazy_episode=0.5))
    assert set(weights_of(rows, "job c")) == {2.0}
    assert report.unknown_episodes == 1
    assert "1 episodes that --weights names are not in train" in report.render()


def test_parts_multiply_and_stand_beside_the_weight(home):
    known = ids(home)
    _, rows = build(home, Weights(half_life_days=1.0, lazy_episode=0.3, episodes={known["idle x"]: 0.7}))
    row = rows.filter(pl.col("name") == "idle x").to_dicts()[0]
    assert {item["key"]: item["value"] for item in row["weight_parts"]} == {
        "episode": 0.7,
        "lazy_episode": 0.3,
    }
    assert row["weight"] == 0.7 * 0.3


def test_copies_have_the_parts_of_what_they_were_made_from(home):
    known = ids(home)
    _, rows = build(home, Weights(episodes={known["job c"]: 2.0}), augment=("paraphrase",))
    copies = rows.filter(pl.col("parent_id").str.starts_with(known["job c"]))
    assert copies.height
    assert set(copies["weight"]) == {2.0}
    others = rows.filter(
        pl.col("parent_id").is_not_null() & ~pl.col("parent_id").str.starts_with(known["job c"])
    )
    assert set(others["weight"]) == {1.0}


def test_held_out_rows_weigh_one_and_arrays_hold_the_weights(home):
    every = Weights(half_life_days=1.0, no_progress=0.5, episodes=dict.fromkeys(ids(home).values(), 3.0))
    _, rows = build(home, every, fractions=(0.5, 0.25, 0.25))
    held = rows.filter(pl.col("split") != "train")
    assert held.height
    assert set(held["weight"]) == {1.0}
    assert held["weight_parts"].list.len().sum() == 0
    for split in ("train", "validation", "test"):
        mine = rows.filter(pl.col("split") == split)["weight"].to_numpy().astype(np.float32)
        assert np.array_equal(load_shards(home / "datasets" / "d", split).weights, mine)


def test_held_out_episodes_change_no_weight_of_train(home, write_jsonl):
    weights = Weights(half_life_days=1.0, lazy_episode=0.5)
    _, before = build(home, weights, fractions=(0.5, 0.25, 0.25))
    train = set(before.filter(pl.col("split") == "train")["name"])
    held = [name for name in ids(home) if name not in train]
    with Store(home / "store.duckdb") as store:
        for name in held:
            store.con.execute(
                "UPDATE episodes SET started_at = started_at + INTERVAL 400 DAY WHERE native_id = ?", [name]
            )
    _, after = build(home, weights, fractions=(0.5, 0.25, 0.25))
    chosen = pl.col("split") == "train"
    columns = ["episode_id", "step", "weight", "weight_parts"]
    assert after.filter(chosen).select(columns).equals(before.filter(chosen).select(columns))


def test_a_manifest_tells_of_named_episodes_only_a_digest(home):
    known = ids(home)
    build(home, Weights(episodes={known["job c"]: 2.0}))
    text = (home / "datasets" / "d" / "manifest.json").read_text()
    assert known["job c"] not in text
    one, other = (Weights(episodes={known["job c"]: factor}).as_dict() for factor in (2.0, 3.0))
    assert one != other


@pytest.mark.parametrize(
    "wrong",
    [
        {"no_progress": -0.5},
        {"off_task": math.nan},
        {"demonstration": math.inf},
        {"half_life_days": 0.0},
        {"half_life_days": math.inf},
        {"episodes": {"e": -1.0}},
    ],
)
def test_what_is_no_factor_is_refused(wrong):
    with pytest.raises(UsageError, match="give a number"):
        Weights(**wrong)


PARTS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.sampled_from("pqrs"), st.floats(0, 1e6)),
    unique_by=lambda item: item[:3],
)


@settings(max_examples=60, deadline=None)
@given(PARTS)
def test_a_weight_is_its_parts_multiplied_one_by_one_in_the_order_of_names(parts):
    rows = pl.DataFrame(
        {
            "episode_id": ["a", "a", "a", "b", "b", "b", "c"],
            "step": pl.Series([0, 1, 2, 0, 1, 2, 0], dtype=pl.Int32),
            "split": ["train"] * 7,
            "parent_id": [None] * 6 + ["b/1"],
            "weight": [1.0] * 7,
            "weight_parts": pl.Series(
                [[]] * 7, dtype=pl.List(pl.Struct({"key": pl.String, "value": pl.Float64}))
            ),
        }
    )
    schema = {"episode_id": pl.String, "step": pl.Int32, "part": pl.String, "factor": pl.Float64}
    weighed, _ = weigh(rows, {}, pl.DataFrame(parts, schema=schema, orient="row"))
    assert weighed.columns == rows.columns
    for row in weighed.to_dicts():
        key = ("b", 1) if row["parent_id"] else (row["episode_id"], row["step"])
        own = sorted((name, factor) for episode, step, name, factor in parts if (episode, step) == key)
        product = 1.0
        for _, factor in own:
            product *= factor
        assert row["weight"] == product
        assert [(item["key"], item["value"]) for item in row["weight_parts"]] == own
    assert weighed["weight"].equals(
        in_order_of_names(weighed, "weight_parts", 1.0, pl.Expr.mul).alias("weight")
    )
    assert sum(part["rows"] for part in parts_told(weighed)) == weighed["weight_parts"].list.len().sum()


def test_every_setting_is_in_the_configuration():
    told = Weights().as_dict()
    assert set(told) == {item.name for item in dataclasses.fields(Weights)}
