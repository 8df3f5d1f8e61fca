"""The settings of a build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from logforge.dataset.conflicts.near import THRESHOLD
from logforge.dataset.states.builder import StateConfig
from logforge.dataset.weights.parts import Weights
from logforge.schemas.manifest import ObservationDtype
from logforge.shards.files import PART_BYTES

ActionLevel = Literal["tool", "tool+template"]


@dataclass(frozen=True)
class BuildConfig:
    """What decides a dataset besides the logs and the reward spec. All of it is in the manifest."""

    encoder: str = "minilm-onnx"
    text_size: int = 32
    seed: int = 0
    fractions: tuple[float, float, float] = (0.7, 0.15, 0.15)
    split_by: str = "group"
    augment: tuple[str, ...] = ()
    retryable: tuple[str, ...] = ()
    epsilon: float = 0.5
    near_threshold: float = THRESHOLD
    conflicts: tuple[str, ...] = ()
    exclude_flags: tuple[str, ...] = ()
    exclude_where: tuple[str, ...] = ()
    hold_out: tuple[str, ...] = ()
    action_aliases: Mapping[str, str] = field(default_factory=dict)
    min_action_count: int = 0
    action_level: ActionLevel = "tool"
    estimate_propensity: bool = False
    weights: Weights = field(default_factory=Weights)
    curriculum: bool = False
    replay_fraction: float = 0.1
    observation_dtype: ObservationDtype = "float32"
    part_bytes: int = PART_BYTES
    licences: tuple[str, ...] = ()
    state: StateConfig = field(default_factory=StateConfig)

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {**asdict(self), "weights": self.weights.as_dict(), "state": self.state.to_dict()}
