"""Trained runs that evaluation tests share."""

from __future__ import annotations

import json

import numpy as np

from logforge.learning.policies.bundle import Golden, Layer, PolicyBundle, PolicyCard
from logforge.shards.reader import load_shards
from support import made_chain as chain
from support.made_chain import CELLS, FORWARD, IDLE, VOCABULARY

FAST = {"members": 5, "updates": 180}


def made_run(folder, algo="cql", *, train_part=None, test_part=None, left_out=(), **policies):
    """A run whose policies are given as the action of each cell."""
    parts = train_part or chain.walk(30, 0.4, 0), chain.walk(3, 0.4, 1), test_part or chain.walk(12, 0.4, 2)
    dataset = chain.write_chain(folder / "chain", *parts)
    manifest = load_shards(dataset).manifest
    for name, favourites in policies.items():
        table_policy(manifest, name, favourites).save(folder / "run" / name)
    told = {
        "schema_version": 3,
        "dataset": {"path": str(dataset), "hash": manifest.hash},
        "config": {"algo": algo, "seed": 0},
        "policies": {key: {"seed": int(key.partition("-")[2] or 0)} for key in policies},
        "left_out": dict(left_out),
    }
    (folder / "run" / "train.json").write_text(json.dumps(told))
    return folder / "run"


AHEAD, MIXED, LATE = [FORWARD] * CELLS, [FORWARD, IDLE[0], *[FORWARD] * 4], [*[FORWARD] * 4, IDLE[2], FORWARD]


def text_of(report):
    return " ".join(report.render().split())


def table_policy(manifest, name, favourites):
    """A policy that takes this action in each cell, whatever is learnt."""
    weight = np.zeros((VOCABULARY.size, CELLS), np.float32)
    weight[favourites, np.arange(len(favourites))] = 1
    card = PolicyCard.of(manifest, algo=name, kind="q" if name == "cql" else "logits", golden=Golden([], []))
    return PolicyBundle(card, (Layer(weight, np.zeros(VOCABULARY.size, np.float32)),))
