"""logforge: raw LLM-agent logs in, offline-RL datasets and a measured tool-choice controller out.

The same verbs as the command line, imported only when they are used:

    open_store · ingest · forget · load_spec · build_dataset · explain · export · load_shards · train · evaluate ·
    credit_of · targets_of
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.moved import install
from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.api import ingest, replay
    from logforge.dataset.build import BuildConfig, build_dataset
    from logforge.evaluation import evaluate
    from logforge.evaluation.credit import credit_of, targets_of
    from logforge.exports import export
    from logforge.forgetting import forget
    from logforge.learning.policies import load_policy
    from logforge.learning.training import train
    from logforge.lineage import explain
    from logforge.rewards import load_spec
    from logforge.shards import FastBuffer, load_shards
    from logforge.store import open_store

__all__ = [
    "BuildConfig", "FastBuffer", "build_dataset", "credit_of", "evaluate", "explain", "export", "forget", "ingest",
    "load_policy", "load_shards", "load_spec", "open_store", "replay", "targets_of", "train",
]  # fmt: skip

face(
    __name__,
    **{
        "dataset.build": "BuildConfig build_dataset",
        "evaluation": "evaluate",
        "evaluation.credit": "credit_of targets_of",
        "exports": "export",
        "forgetting": "forget",
        "api": "ingest replay",
        "learning.policies": "load_policy",
        "learning.training": "train",
        "lineage": "explain",
        "rewards": "load_spec",
        "shards": "FastBuffer load_shards",
        "store": "open_store",
    },
)

install()
