"""What a build is asked for: its settings checked, and what follows from them alone made ready."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logforge.core import Tick, silent
from logforge.dataset.actions import ArgumentSpace
from logforge.dataset.augmentation import Augmenter, make_augmenter
from logforge.dataset.build.config import BuildConfig
from logforge.dataset.conflicts import Policy, read_policy
from logforge.dataset.quality import Allowance, check_thresholds
from logforge.rewards import load_spec
from logforge.schemas import RewardSpec, UsageError, Vocabulary
from logforge.store import Store
from logforge.texts import Encoder, Pca, make_encoder

_NAME = re.compile(r"[^\W_][\w.-]{0,99}")


@dataclass(frozen=True, slots=True)
class Earlier:
    """What a build keeps of an earlier dataset: action ids, places of the second level of actions, columns of texts."""

    vocabulary: Vocabulary | None = None
    arguments: ArgumentSpace | None = None
    reduction: Pca | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The store to build dataset `name` from, the folder `out` to put it into, and all that decides what it holds."""

    store: Store
    name: str
    out: Path
    reward: str | Path | RewardSpec
    spec: RewardSpec
    config: BuildConfig
    encoder: Encoder
    augmenters: tuple[Augmenter, ...]
    policy: Policy
    """What is done about each kind of conflict."""
    earlier: Earlier
    gates: Mapping[str, float]
    allowance: Allowance
    """How many episodes with broken rows may be set aside."""
    missing: Allowance
    """How many complete episodes may be left out because their reward is missing."""
    progress: Tick

    @classmethod
    def of(
        cls,
        store: Store,
        reward: str | Path | RewardSpec,
        name: str,
        out: Path,
        config: BuildConfig,
        earlier: Earlier,
        gates: Mapping[str, float],
        max_quarantine: str,
        max_missing: str,
        progress: Tick | None,
    ) -> Plan:
        """A plan from what `build_dataset` is given. Raises SpecError and UsageError for what cannot be meant."""
        allowance, missing = Allowance.parse(max_quarantine), Allowance.parse(max_missing)
        check_thresholds(gates)
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} is no dataset name", "use up to 100 letters, digits, '-', '_' and '.'"
            )
        return cls(
            store=store,
            name=name,
            out=out,
            reward=reward,
            spec=reward if isinstance(reward, RewardSpec) else load_spec(reward),
            config=config,
            encoder=make_encoder(config.encoder),
            augmenters=_augmenters(config),
            policy=read_policy(config.conflicts),
            earlier=earlier,
            gates=gates,
            allowance=allowance,
            missing=missing,
            progress=progress or silent,
        )

    @property
    def folder(self) -> Path:
        """The dataset's own folder."""
        return self.out / self.name


def _augmenters(config: BuildConfig) -> tuple[Augmenter, ...]:
    if "tool_failure" in config.augment and not config.retryable:
        raise UsageError(
            "tool_failure lets only retryable tools fail, and none is named",
            "name some with --retryable TOOL",
        )
    options: dict[str, dict[str, Any]] = {"tool_failure": {"retryable": config.retryable}}
    return tuple(make_augmenter(name, options.get(name, {})) for name in config.augment)
