"""Planted conflicts, from logs to the table: every one is found, under its kind and level, and hardly anything else."""

from __future__ import annotations

import json
import random
from collections import Counter

import polars as pl
import pytest

from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.ingestion.pipeline import ingest
from logforge.store.store import Store
from support.planted_conflicts import KINDS, LABEL_LEVELS, LEVELS, Plant, number_of, plant

EACH = 6
SPEC = "gamma: 0.9\nterms: {success: {when: success, value: 10, at: terminal}}\n"


def conflicts_of(folder, rows, demonstrations):
    (folder / "logs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "reward.yaml").write_text(SPEC)
    with Store(folder / "store.duckdb") as store:
        ingest(store, [folder / "logs.jsonl"], workers=1)
        store.con.execute(
            "UPDATE episodes SET source_kind = 'human_demo' WHERE native_id IN (SELECT unnest(?))",
            [demonstrations],
        )
        build_dataset(
            store, folder / "reward.yaml", name="d", out=folder, config=BuildConfig(encoder="hashing")
        )
        return store.con.sql(
            "SELECT c.*, a.native_id AS a, b.native_id AS b FROM conflicts c "
            "JOIN episodes a ON a.episode_id = episode_a JOIN episodes b ON b.episode_id = episode_b"
        ).pl()


@pytest.fixture(scope="module")
def planted():
    return plant(EACH)


@pytest.fixture(scope="module")
def found(planted, tmp_path_factory):
    return conflicts_of(tmp_path_factory.mktemp("planted"), planted.rows, planted.demonstrations)


def told(found: pl.DataFrame) -> set[Plant]:
    rows = found.select("kind", "level", "a", "b").iter_rows()
    return {Plant(kind, level, number_of(a)) for kind, level, a, b in rows if number_of(a) == number_of(b)}


@pytest.mark.parametrize("kind", KINDS)
def test_every_planted_conflict_is_found_and_hardly_anything_else(planted, found, kind, capsys):
    truth = {item for item in planted.truth if item.kind == kind}
    rows = found.filter(pl.col("kind") == kind)
    hits = told(rows) & truth
    recall, precision = len(hits) / len(truth), len(hits) / rows.height
    with capsys.disabled():
        print(
            f"\n{kind}: recall {recall:.3f}, precision {precision:.3f} ({len(truth)} planted, {rows.height} found)"
        )
    assert recall == 1.0
    assert precision >= 0.95
    levels = Counter(item.level for item in hits)
    assert levels == dict.fromkeys(LABEL_LEVELS if kind == "label" else LEVELS, EACH)


def test_the_order_of_the_logs_changes_nothing(planted, found, tmp_path):
    rows = list(planted.rows)
    random.Random(1).shuffle(rows)
    again = conflicts_of(tmp_path, rows, planted.demonstrations)
    assert again.sort(found.columns).equals(found.sort(found.columns))
