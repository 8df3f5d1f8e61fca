"""A build is deterministic, traceable and leak-free, and replaces its predecessor whole or not at all."""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from logforge.dataset.build import publication
from logforge.dataset.build.earlier_dataset import earlier_vocabulary
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.ingestion.pipeline import ingest
from logforge.schemas.errors import CheckFailed, SpecError, UsageError
from logforge.shards.reader import load_shards
from logforge.store.store import Store
from logforge.texts.encoders import embed, make_encoder
from logforge.texts.pca import Pca, fit_pca

SPEC = """
gamma: 0.9
terms:
  success: {when: success, value: 10, at: terminal}
  step_cost: {value: -0.1}
  tool_error: {when: "result_status in ('error', 'timeout')", value: -1}
"""
HASHING = BuildConfig(encoder="hashing", text_size=8)


@pytest.fixture
def logs(tmp_path, conversation, write_jsonl):
    """Forty episodes in four files: two tools, failures, unlabelled ones, a truncated one, one without a decision."""
    rows = [
        conversation(
            f"item {n}", "lookup" if n % 3 else "search", "Error: not found" if n % 4 == 0 else f"result {n}"
        )
        for n in range(36)
    ]
    for n, row in enumerate(rows):
        row["success"] = n % 4 != 0
    rows.append(conversation("unlabelled", success=None))
    cut = conversation("cut")
    cut["messages"], cut["success"] = cut["messages"][:2], None
    rows.append(cut)
    rows.append(
        {"id": "silent", "success": False, "messages": [{"role": "user", "content": "anyone there?"}]}
    )
    for start in range(4):
        write_jsonl(tmp_path / "logs" / f"{start}.jsonl", rows[start::4])
    (tmp_path / "reward.yaml").write_text(SPEC)
    return tmp_path / "logs"


def build(tmp_path, logs, name="d", config=HASHING, files=None, workers=1, **more):
    with Store(tmp_path / f"{name}.duckdb") as store:
        for file in files or [logs]:
            ingest(store, [file], workers=workers)
        report = build_dataset(
            store, tmp_path / "reward.yaml", name="d", out=tmp_path / name, config=config, **more
        )
        rows = store.con.sql("SELECT * FROM transitions ORDER BY episode_id, step").pl()
    return report, rows


def digest(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files
    }


def test_the_same_logs_give_the_same_bytes_in_any_order_and_with_any_workers(tmp_path, logs):
    files = sorted(logs.iterdir())
    config = BuildConfig(
        encoder="hashing", text_size=8, augment=("paraphrase", "tool_failure"), retryable=("lookup",)
    )
    ways = [({}, 1), ({"files": files[::-1]}, 1), ({}, 2)]
    results = []
    for number, (more, workers) in enumerate(ways):
        build(tmp_path, logs, f"w{number}", config, workers=workers, **more)
        results.append(digest(tmp_path / f"w{number}" / "d"))
    assert len(results[0]) > 10
    assert results[0] == results[1] == results[2]


def test_what_cannot_be_learnt_from_is_left_out_with_its_reason(tmp_path, logs):
    report, rows = build(tmp_path, logs)
    assert sum(report.left_out.values()) == 2
    assert any("success" in reason for reason in report.left_out)
    assert any("decides nothing" in reason for reason in report.left_out)
    with Store(tmp_path / "d.duckdb", read_only=True) as store:
        found = store.con.sql("SELECT level, dataset, rule, locator FROM quarantine ORDER BY rule").fetchall()
    assert [row[:3] for row in found] == [
        ("transition", "d", "no_decision"),
        ("transition", "d", "null_reward"),
    ]
    assert all("logs/" in row[3] for row in found)
    assert rows["episode_id"].n_unique() == 37


def test_shards_hold_what_the_rows_say(tmp_path, logs):
    _, rows = build(tmp_path, logs)
    for split in ("train", "validation", "test"):
        shard = load_shards(tmp_path / "d" / "d", split)
        mine = rows.filter(pl.col("split") == split)
        assert shard.actions.tolist() == mine["action_id"].to_list()
        np.testing.assert_array_equal(shard.rewards, mine["reward"].to_numpy().astype(np.float32))
        np.testing.assert_array_equal(shard.returns, mine["return_to_go"].to_numpy().astype(np.float32))
        assert shard.terminals.tolist() == mine["terminal"].to_list()
        assert shard.timeouts.tolist() == mine["timeout"].to_list()
        assert shard.observations.shape[0] == shard.size + mine["episode_id"].n_unique()
    assert rows.filter("timeout").height == 1
    assert rows.filter("timeout")["return_is_partial"].all()


def fitted_on(vectors, counts):
    """By hash, each text as often as it was said."""
    rows = sorted((vectors.index(text), count) for text, count in counts.items() if vectors.index(text))
    return fit_pca(vectors.matrix[[row for row, _ in rows]], np.array([n for _, n in rows], np.float64), 8)


def test_pca_is_fitted_on_the_train_split_alone(tmp_path, logs):
    build(tmp_path, logs)
    saved = Pca.load(tmp_path / "d" / "d" / "encoder" / "pca.npz")
    with Store(tmp_path / "d.duckdb") as store:
        said = {
            split: {
                row[0]: row[1]
                for row in store.con.sql(
                    "SELECT content, count(*) FROM messages JOIN splits USING (episode_id) WHERE content IS NOT NULL "
                    f"AND episode_id IN (SELECT episode_id FROM transitions) {condition} GROUP BY 1"
                ).fetchall()
            }
            for split, condition in (("train", "AND split = 'train'"), ("all", ""))
        }
        encoder = make_encoder("hashing")
        fitted = {split: fitted_on(embed(store.con, encoder, texts), texts) for split, texts in said.items()}
    np.testing.assert_array_equal(saved.mean, fitted["train"].mean)
    assert not np.array_equal(saved.mean, fitted["all"].mean)


def test_augmented_rows_live_in_train_alone_and_name_their_parent(tmp_path, logs):
    config = BuildConfig(
        encoder="hashing", text_size=8, seed=3, augment=("paraphrase", "tool_failure"), retryable=("lookup",)
    )
    report, rows = build(tmp_path, logs, config=config)
    made = rows.filter(pl.col("parent_id").is_not_null())
    assert set(report.augmented) == {"paraphrase", "tool_failure"}
    assert set(made["split"]) == {"train"}
    assert set(made["augment_seed"]) == {3}
    logged = set(
        zip(
            *rows.filter(pl.col("parent_id").is_null())
            .select("episode_id", "step")
            .to_dict(as_series=False)
            .values(),
            strict=True,
        )
    )
    for parent in made["parent_id"]:
        episode, _, step = parent.partition("/")
        assert (episode, int(step)) in logged
    failing = (
        made.filter(pl.col("augmenter") == "tool_failure")
        .group_by("parent_id")
        .agg("action", "reward")
        .filter(pl.col("action").list.len() == 2)
    )
    assert failing.height > 0, "each failure row has its retry"
    for actions, paid in failing.select("action", "reward").iter_rows():
        assert actions == ["lookup", "lookup"]
        assert min(paid) == pytest.approx(-1.1), "the failing attempt is paid by the spec"


def test_groups_stay_on_one_side(tmp_path, conversation, write_jsonl):
    rows = [
        conversation(f"{task}", result=f"trial {trial}", trial=trial)
        for task, trial in itertools.product(range(12), range(3))
    ]
    logs = write_jsonl(tmp_path / "logs" / "a.jsonl", rows)
    (tmp_path / "reward.yaml").write_text(SPEC)
    build(tmp_path, logs.parent)
    with Store(tmp_path / "d.duckdb", read_only=True) as store:
        crossing = store.con.sql(
            "SELECT task_id FROM splits JOIN episodes USING (episode_id) GROUP BY 1 HAVING count(DISTINCT split) > 1"
        ).fetchall()
        assert store.con.sql("SELECT count(DISTINCT split) FROM splits").fetchall() == [(3,)]
    assert crossing == []


def test_a_rebuild_replaces_and_another_name_stands_beside(tmp_path, logs):
    with Store(tmp_path / "s.duckdb") as store:
        ingest(store, [logs])
        first = build_dataset(store, tmp_path / "reward.yaml", name="a", out=tmp_path / "out", config=HASHING)
        build_dataset(store, tmp_path / "reward.yaml", name="b", out=tmp_path / "out", config=HASHING)
        again = build_dataset(store, tmp_path / "reward.yaml", name="a", out=tmp_path / "out", config=HASHING)
        assert first.hash == again.hash
        counts = dict(store.con.sql("SELECT dataset, count(*) FROM transitions GROUP BY 1").fetchall())
        assert counts["a"] == counts["b"]
        assert store.con.sql("SELECT DISTINCT dataset FROM transitions_latest").fetchall() == [("a",)]
        assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir()) == ["a", "b"]


def test_a_build_that_fails_leaves_the_earlier_one(tmp_path, logs, monkeypatch):
    with Store(tmp_path / "s.duckdb") as store:
        ingest(store, [logs])
        build_dataset(store, tmp_path / "reward.yaml", name="a", out=tmp_path / "out", config=HASHING)
        before = digest(tmp_path / "out"), store.con.sql("SELECT * FROM transitions ORDER BY ALL").fetchall()

        def full_disk(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(publication, "write_dataset", full_disk)
        with pytest.raises(OSError, match="No space"):
            build_dataset(
                store,
                tmp_path / "reward.yaml",
                name="a",
                out=tmp_path / "out",
                config=BuildConfig(encoder="hashing", seed=9),
            )
        assert (
            digest(tmp_path / "out"),
            store.con.sql("SELECT * FROM transitions ORDER BY ALL").fetchall(),
        ) == before


def test_an_earlier_vocabulary_keeps_its_ids(tmp_path, logs, conversation, write_jsonl):
    build(tmp_path, logs, "first")
    old = earlier_vocabulary(tmp_path / "first" / "d")
    write_jsonl(tmp_path / "logs" / "new.jsonl", [conversation(f"new {n}", "aardvark") for n in range(5)])
    build(tmp_path, logs, "second", vocabulary=old)
    new = load_shards(tmp_path / "second" / "d", "train").manifest.vocabulary
    assert new.actions[: old.size] == old.actions
    assert new.actions[old.size :] == ("aardvark",)
    build(tmp_path, logs, "third")
    assert load_shards(tmp_path / "third" / "d", "train").manifest.vocabulary.id("aardvark") == 2


def test_a_hallucinated_tool_is_kept_as_an_invalid_action(tmp_path, logs, conversation, write_jsonl):
    tools = [{"type": "function", "function": {"name": "lookup"}}]
    write_jsonl(tmp_path / "logs" / "h.jsonl", [conversation("h", "imagined", tools=tools)])
    _, rows = build(tmp_path, logs)
    ((valid, action_id, kind),) = (
        rows.filter(pl.col("action") == "imagined").select("action_valid", "action_id", "mask_kind").rows()
    )
    vocabulary = load_shards(tmp_path / "d" / "d", "train").manifest.vocabulary
    assert (valid, action_id, kind) == (False, vocabulary.invalid, "logged")
    assert "imagined" not in vocabulary.actions


def test_an_empty_store_and_a_wrong_spec_are_refused(tmp_path, store):
    (tmp_path / "reward.yaml").write_text(SPEC)
    with pytest.raises(CheckFailed, match="no episode can be used"):
        build_dataset(store, tmp_path / "reward.yaml", config=HASHING, out=tmp_path)
    (tmp_path / "reward.yaml").write_text(SPEC.replace("when: success", "when: sucess"))
    with pytest.raises(SpecError, match=r"reward.yaml:4"):
        build_dataset(store, tmp_path / "reward.yaml", config=HASHING, out=tmp_path)


def test_the_manifest_names_what_it_was_made_of(tmp_path, logs):
    build(tmp_path, logs)
    manifest = json.loads((tmp_path / "d" / "d" / "manifest.json").read_text())
    assert len(manifest["sources"]) == 4
    assert {source["format"] for source in manifest["sources"]} == {"openai_messages"}
    assert manifest["gamma"] == 0.9
    assert manifest["encoder"]["name"] == "hashing"
    assert str(tmp_path) not in json.dumps(manifest)


def test_a_twin_whose_reward_is_unknown_is_left_out_and_counted(tmp_path, logs):
    """An injected failure carries no logged reward: a spec that needs one cannot pay it."""
    (tmp_path / "reward.yaml").write_text("gamma: 1\nterms:\n  logged: {value: logged_reward}\n")
    config = BuildConfig(encoder="hashing", text_size=8, augment=("tool_failure",), retryable=("lookup",))
    with Store(tmp_path / "s.duckdb") as store:
        ingest(store, [logs])
        store.con.execute("UPDATE steps SET logged_reward = 1")
        report = build_dataset(store, tmp_path / "reward.yaml", out=tmp_path / "out", config=config)
    assert report.augmented == {}
    assert next(count for reason, count in report.left_out.items() if "logged_reward" in reason) > 5


def test_options_are_checked_before_any_work(store, tmp_path):
    (tmp_path / "reward.yaml").write_text(SPEC)
    for config, error in (
        (BuildConfig(encoder="hashing", augment=("tool_failure",)), "--retryable"),
        (BuildConfig(encoder="hashing", augment=("nonsense",)), "valid: "),
        (BuildConfig(encoder="nonsense"), "nonsense"),
    ):
        with pytest.raises(UsageError, match=error):
            build_dataset(store, tmp_path / "reward.yaml", out=tmp_path, config=config)


def test_shards_may_be_stored_as_float16_in_parts_with_stated_licences(tmp_path, logs):
    stored = {"observation_dtype": "float16", "part_bytes": 2048, "licences": ("openai_messages=MIT",)}
    build(tmp_path, logs, "plain")
    build(tmp_path, logs, "half", replace(HASHING, **stored))
    wide, half = load_shards(tmp_path / "plain" / "d"), load_shards(tmp_path / "half" / "d")
    assert len(list((tmp_path / "half" / "d" / "train").glob("observations-*.npy"))) > 1
    assert np.array_equal(half.observations[:], wide.observations.astype(np.float16).astype(np.float32))
    assert half.manifest.hash != wide.manifest.hash
    card = (tmp_path / "half" / "d" / "README.md").read_text("utf-8")
    assert "| `openai_messages` | 4 | MIT |" in card
    assert "stored as float16" in card
    for wrong, said in (("MIT", "FORMAT=LICENCE"), ("openai=MIT", "unknown format 'openai'")):
        with pytest.raises(UsageError, match=said):
            build(tmp_path, logs, "wrong", replace(HASHING, licences=(wrong,)))
