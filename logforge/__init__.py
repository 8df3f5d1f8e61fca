"""logforge: raw LLM-agent logs in, offline-RL datasets and a measured tool-choice controller out.

The same verbs as the command line, imported only when they are used:

    open_store · ingest · forget · load_spec · build_dataset · explain · export · load_shards · train · evaluate ·
    credit_of · targets_of
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logforge.dataset.build.pipeline import BuildConfig, build_dataset
    from logforge.evaluation.credit.pipeline import credit_of
    from logforge.evaluation.credit.targets import targets_of
    from logforge.evaluation.pipeline import evaluate
    from logforge.exports.pipeline import export
    from logforge.forgetting.pipeline import forget
    from logforge.ingestion.pipeline import ingest
    from logforge.ingestion.replaying import replay
    from logforge.learning.policies.bundle import load_policy
    from logforge.learning.training.pipeline import train
    from logforge.lineage.explanation import explain
    from logforge.rewards.pipeline import load_spec
    from logforge.shards.fast_buffer import FastBuffer
    from logforge.shards.reader import load_shards
    from logforge.store.store import open_store

__all__ = [
    "BuildConfig",
    "FastBuffer",
    "build_dataset",
    "credit_of",
    "evaluate",
    "explain",
    "export",
    "forget",
    "ingest",
    "load_policy",
    "load_shards",
    "load_spec",
    "open_store",
    "replay",
    "targets_of",
    "train",
]

# A function and its module must not share a name: importing the module would shadow the function.
_HOME = {
    "BuildConfig": "build",
    "FastBuffer": "fast_buffer",
    "build_dataset": "build",
    "credit_of": "credit",
    "evaluate": "evaluation",
    "explain": "explanation",
    "export": "exporters",
    "forget": "forgetting",
    "ingest": "ingestion",
    "load_policy": "policy",
    "load_shards": "shards",
    "load_spec": "rewards",
    "open_store": "store",
    "replay": "replaying",
    "targets_of": "targets",
    "train": "training",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'logforge' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"logforge.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
