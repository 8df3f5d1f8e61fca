"""Small policies."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import msgspec
import numpy as np

from logforge.dataset.states.golden import golden_file, of_episodes
from logforge.learning.policies.bundle import Golden, Layer, PolicyBundle, PolicyCard
from logforge.schemas.manifest import ArgumentTemplate
from support.made_arrays import DIM, VOCABULARY, manifest


def texts_of_its_own(one, golden) -> list[bytes]:
    """The longer texts of a golden state's episode that no other episode's states hold, as the file has them."""
    others = golden_file(of_episodes(golden, {other.episode_id for other in golden} - {one.episode_id}))
    texts = (turn.content for turn in one.state.window if len(turn.content or "") > 60)
    written = (json.dumps(text, ensure_ascii=False)[1:-1].encode() for text in texts)
    return [text for text in written if text not in others]


A = VOCABULARY.size


def made(kind="logits", seed=0, golden_rows=3):
    rng = np.random.default_rng(seed)
    sizes = [DIM, 8, 5, A]
    layers = tuple(
        Layer(
            rng.normal(size=(outputs, inputs)).astype(np.float32), rng.normal(size=outputs).astype(np.float32)
        )
        for inputs, outputs in itertools.pairwise(sizes)
    )
    observations = rng.normal(size=(golden_rows, DIM)).astype(np.float32)
    golden = Golden(observations.tolist(), by_hand(layers, observations).tolist())
    return PolicyBundle(PolicyCard.of(SEALED, algo="bc", kind=kind, golden=golden), layers)


def with_templates(policy):
    """`refund` has two templates, `search` one, nothing else any."""
    templates = tuple(
        ArgumentTemplate(action, text)
        for action, text in (("refund", "all"), ("search", "by name"), ("refund", "a part"))
    )
    rng = np.random.default_rng(4)
    head = Layer(rng.normal(size=(3, 5)).astype(np.float32), rng.normal(size=3).astype(np.float32))
    card = msgspec.structs.replace(policy.card, templates=templates)
    return replace(policy, card=card, extras={"template": (head,)})


SEALED = manifest().sealed({}, None, {"encoder/pca.npz": "one", "train/actions.npy": "two"})


def by_hand(layers, observations):
    """The MLP, one row and one unit at a time."""
    rows = []
    for row in np.asarray(observations, dtype=np.float64):
        for place, (weight, bias) in enumerate(layers):
            row = np.array([sum(w * x for w, x in zip(unit, row, strict=True)) for unit in weight]) + bias
            row = row if place == len(layers) - 1 else np.where(row > 0, row, 0)
        rows.append(row)
    return np.array(rows)
