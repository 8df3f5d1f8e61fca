"""The reward spec that a dataset was built with, tried out in the small world of `logforge reward lint`."""

from __future__ import annotations

from logforge.rewards.lint.trial import Trial
from logforge.rewards.pipeline import Scale
from logforge.schemas.manifest import Manifest
from logforge.schemas.reward import RewardSpec


def recorded_trial(manifest: Manifest) -> Trial | None:
    """None where the manifest records no spec, or one with scorers, which the small world cannot run."""
    record = manifest.reward
    if "spec" not in record:
        return None
    spec = RewardSpec.model_validate(record["spec"])
    scales = {name: Scale(**values) for name, values in record.get("scales", {}).items()}
    return None if spec.scored else Trial.of(spec, scales)
