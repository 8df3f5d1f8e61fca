"""Shards of known habits."""

from __future__ import annotations

import numpy as np

from logforge.learning.policies.bundle import Golden, PolicyBundle, PolicyCard
from logforge.learning.policies.layers import Layer
from support.made_arrays import DIM, VOCABULARY, manifest

A = VOCABULARY.size


def made(seed: int = 0, *, behaviour: bool = True) -> PolicyBundle:
    rng = np.random.default_rng(seed)

    def layer() -> Layer:
        weight = rng.normal(size=(A, DIM)) * np.array([0.02, 1, 1])
        return Layer(weight.astype(np.float32), rng.normal(size=A).astype(np.float32))

    card = PolicyCard.of(SEALED, algo="bc", kind="logits", golden=Golden([], []))
    return PolicyBundle(card, (layer(),), (layer(),) if behaviour else ())


SEALED = manifest().sealed({}, None, {"encoder/pca.npz": "one", "train/actions.npy": "two"})
