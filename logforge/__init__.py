"""logforge: raw LLM-agent logs in, offline-RL datasets and a measured tool-choice controller out.

The same verbs as the command line, imported only when they are used:

    open_store · ingest · forget · load_spec · build_dataset · explain · export · load_shards · train · evaluate ·
    credit_of · targets_of
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logforge.build import BuildConfig, build_dataset
    from logforge.credit import credit_of
    from logforge.evaluation import evaluate
    from logforge.explanation import explain
    from logforge.exporters import export
    from logforge.fast_buffer import FastBuffer
    from logforge.forgetting import forget
    from logforge.ingestion import ingest
    from logforge.policy import load_policy
    from logforge.replaying import replay
    from logforge.rewards import load_spec
    from logforge.shards import load_shards
    from logforge.store import open_store
    from logforge.targets import targets_of
    from logforge.training import train

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
