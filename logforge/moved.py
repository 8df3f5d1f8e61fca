"""Old places of documented modules: an import by an old name still works, and warns where the names are now."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

MOVED: Final = {
    "logforge.action_parser": "logforge.serving.action_parser",
    "logforge.action_text": "logforge.dataset.actions.texts",
    "logforge.build": "logforge.dataset.build",
    "logforge.check": "logforge.checks.pipeline",
    "logforge.connectors.base": "logforge.connectors.records",
    "logforge.connectors.builder": "logforge.connectors.episodes",
    "logforge.connectors.content": "logforge.connectors.episodes",
    "logforge.connectors.rows": "logforge.connectors.episodes",
    "logforge.credit": "logforge.evaluation.credit",
    "logforge.curriculum": "logforge.dataset.weights",
    "logforge.events": "logforge.dataset.states",
    "logforge.exporters": "logforge.exports logforge.shards",
    "logforge.fingerprint": "logforge.learning.training",
    "logforge.goal_summary": "logforge.dataset.states",
    "logforge.guards": "logforge.serving",
    "logforge.history_ids": "logforge.dataset.states",
    "logforge.new_actions": "logforge.learning.policies",
    "logforge.optional": "logforge.core",
    "logforge.plausibility": "logforge.serving",
    "logforge.probes": "logforge.learning.training",
    "logforge.quarantine": "logforge.ingestion",
    "logforge.sample_efficiency": "logforge.evaluation",
    "logforge.scorer": "logforge.rewards.scorers",
    "logforge.shard_writer": "logforge.shards",
    "logforge.state_text": "logforge.dataset.states",
    "logforge.symbols": "logforge.dataset.states",
    "logforge.targets": "logforge.evaluation.credit",
}
"""The module that the documentation named before, and where its names are now."""


class _Forward(Loader):
    """Makes a module whose names are those of another."""

    def __init__(self, targets: Sequence[str]) -> None:
        self.targets = targets

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """An empty module, as usual."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Look every name up in the new place."""
        told = f"{module.__name__} has moved: import from {' or '.join(self.targets)}"
        warnings.warn(told, DeprecationWarning, stacklevel=2)
        found = [importlib.import_module(target) for target in self.targets]

        def get(name: str) -> Any:
            holder = next((target for target in found if hasattr(target, name)), found[0])
            return getattr(holder, name)

        module.__dict__["__getattr__"] = get


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, _Forward(MOVED[fullname].split())) if fullname in MOVED else None


def install() -> None:
    """Let the old names be found, after everything that is really there."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
