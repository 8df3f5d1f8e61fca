"""logforge: raw LLM-agent logs in, offline-RL datasets and a measured tool-choice controller out.

The same verbs as the command line, imported only when they are used:

    open_store · ingest · load_spec · build_dataset · explain · export · load_shards · train · evaluate
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logforge.build import BuildConfig, build_dataset
    from logforge.evaluation import evaluate
    from logforge.explanation import explain
    from logforge.exporters import export
    from logforge.ingestion import ingest
    from logforge.policy import load_policy
    from logforge.rewards import load_spec
    from logforge.shards import load_shards
    from logforge.store import open_store
    from logforge.training import train

__all__ = [
    "BuildConfig",
    "build_dataset",
    "evaluate",
    "explain",
    "export",
    "ingest",
    "load_policy",
    "load_shards",
    "load_spec",
    "open_store",
    "train",
]

# A function and its module must not share a name: importing the module would shadow the function.
_HOME = {
    "BuildConfig": "build",
    "build_dataset": "build",
    "evaluate": "evaluation",
    "explain": "explanation",
    "export": "exporters",
    "ingest": "ingestion",
    "load_policy": "policy",
    "load_shards": "shards",
    "load_spec": "rewards",
    "open_store": "store",
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
