"""A run and a store to give credit in."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logforge.learning.policies.bundle import Golden, Layer, PolicyBundle, PolicyCard
from logforge.shards.arrays import SplitArrays
from logforge.shards.reader import Shard, load_shards
from logforge.shards.sides import plain_sides
from logforge.store.store import Store
from support import made_chain as chain
from support.made_chain import CELLS, FORWARD, VOCABULARY


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("credit")
    held = chain.walk(12, CHANCE, 2)
    known = np.where(np.arange(held.size) % 2, np.where(held.actions == FORWARD, CHANCE, 0.2), np.nan)
    known = known.astype(np.float32)
    held = replace(held, propensities=known, **plain_sides(held.actions, known))
    dataset = chain.write_chain(folder / "chain", chain.walk(300, CHANCE, 0), chain.walk(3, CHANCE, 1), held)
    manifest = load_shards(dataset).manifest
    drawing_policy(manifest).save(folder / "run" / "bc")
    told = {
        "schema_version": 3,
        "dataset": {"path": str(dataset), "hash": manifest.hash},
        "config": {"algo": "bc", "seed": 0},
        "policies": {"bc": {"seed": 0}},
        "left_out": {},
    }
    (folder / "run" / "train.json").write_text(json.dumps(told))
    return folder / "run"


@pytest.fixture(scope="module")
def store(run):
    """The store's rows that the chain's test split would have come from; decisions 30 s apart, one time in each unknown."""
    held = load_shards(run.parent / "chain", "test")
    path = run.parent / "store.duckdb"
    steps = np.arange(held.size) - np.asarray(held.episode_offsets)[held.episode_index]
    frame = pl.DataFrame(
        {
            "dataset": "chain",
            "split": "test",
            "episode_id": [f"e{number:02}" for number in held.episode_index],
            "step": steps.astype(np.int32),
            "position": steps.astype(np.int32),
            "action": [VOCABULARY.actions[action] for action in held.actions],
            "kind": ["respond" if action in chain.IDLE[:2] else "tool" for action in held.actions.tolist()],
            "result_status": ["ok" if action == FORWARD else "error" for action in held.actions.tolist()],
            "reward": held.rewards.astype(np.float64),
            "success": held.success[held.episode_index] == 1,
            "locator": [f"log.jsonl:{number + 1}" for number in range(held.size)],
            "created_at": [
                None if step == 2 else datetime(2026, 1, 1) + timedelta(seconds=30 * step)
                for step in steps.tolist()
            ],
        }
    )
    with Store(path) as opened:
        opened.con.register("rows", frame.to_arrow())
        for table, columns in (
            ("transitions", "dataset, split, episode_id, step, action, reward, success, locator"),
            ("steps", "episode_id, step, position, kind, action, result_status, locator"),
            ("messages", "episode_id, position, created_at"),
        ):
            opened.con.execute(f"INSERT INTO {table} BY NAME SELECT {columns} FROM rows")
        opened.con.execute(
            "INSERT INTO datasets BY NAME SELECT 'chain' AS dataset, ? AS hash", [held.manifest.hash]
        )
    return path


def made_shard(episodes, seed):
    """Episodes with these rewards, and observations and actions drawn at random."""
    rng = np.random.default_rng(seed)
    lengths = [len(rewards) for rewards in episodes]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    plain = chain.walk(len(episodes), CHANCE, 0)
    arrays = {
        **vars(plain),
        "actions": rng.choice(chain.ALLOWED, offsets[-1]).astype(np.int32),
        "rewards": np.concatenate(episodes).astype(np.float32),
        "episode_offsets": offsets,
        "observation_offsets": offsets + np.arange(len(offsets)),
        "observations": rng.random((offsets[-1] + len(episodes), CELLS)).astype(np.float32),
        "masks": np.ones((offsets[-1] + len(episodes), VOCABULARY.size), bool),
    }
    names = {field.name for field in fields(SplitArrays)}
    given = {name: array for name, array in arrays.items() if name in names}
    return Shard(**given, manifest=chain.manifest(), path=Path(), split="test")


CHANCE = 0.4


def drawing_policy(manifest):
    """Goes forward with CHANCE and idles evenly: the one that made the log."""
    weight = np.full((VOCABULARY.size, CELLS), -50.0, np.float32)
    weight[chain.IDLE] = np.log((1 - CHANCE) / len(chain.IDLE))
    weight[FORWARD] = np.log(CHANCE)
    card = PolicyCard.of(manifest, algo="bc", kind="logits", golden=Golden([], []))
    return PolicyBundle(card, (Layer(weight, np.zeros(VOCABULARY.size, np.float32)),))
