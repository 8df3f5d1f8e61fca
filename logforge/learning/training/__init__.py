"""The learners, and a training run from shards to a bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.learning.training.alarms import Limits
    from logforge.learning.training.config import ONE_HEAD, TrainConfig
    from logforge.learning.training.continual import reach, rescored
    from logforge.learning.training.experience import Replay
    from logforge.learning.training.findings import (
        ALIKE,
        COLLAPSED,
        FAST_TARGETS,
        FEW_SUCCESSES,
        FINDINGS,
        HARDLY_CONSERVATIVE,
        HIGH_RATE,
        LONG_AGO,
        LOST,
        MOST_OOD,
        NOT_LESS_ALPHA,
        OVERESTIMATED,
        QUICK_FAILURES,
        REPEATS,
        STOPPED,
        SURE,
        VERY_SURE,
        alpha_off,
        collapsed,
        few_episodes,
        few_updates,
        fitting_alpha,
    )
    from logforge.learning.training.fingerprints import compare, fingerprint
    from logforge.learning.training.fitting import bundle_of, device, rules_of
    from logforge.learning.training.learners import CONSERVATIVE, LEARNERS, Fit, Rules
    from logforge.learning.training.monitors import Behaviour, Monitor
    from logforge.learning.training.notes import brief, clone_risks, fresh_starts
    from logforge.learning.training.pipeline import train
    from logforge.learning.training.policy_vectors import side_of
    from logforge.learning.training.presets import preset
    from logforge.learning.training.probe_states import choose_probes

__all__ = [
    "ALIKE", "COLLAPSED", "CONSERVATIVE", "FAST_TARGETS", "FEW_SUCCESSES", "FINDINGS",
    "HARDLY_CONSERVATIVE", "HIGH_RATE", "LEARNERS", "LONG_AGO", "LOST", "MOST_OOD", "NOT_LESS_ALPHA",
    "ONE_HEAD", "OVERESTIMATED", "QUICK_FAILURES", "REPEATS", "STOPPED", "SURE", "VERY_SURE", "Behaviour",
    "Fit", "Limits", "Monitor", "Replay", "Rules", "TrainConfig", "alpha_off", "brief", "bundle_of",
    "choose_probes", "clone_risks", "collapsed", "compare", "device", "few_episodes", "few_updates",
    "fingerprint", "fitting_alpha", "fresh_starts", "preset", "reach", "rescored", "rules_of", "side_of",
    "train",
]  # fmt: skip

face(
    __name__,
    alarms="Limits",
    config="ONE_HEAD TrainConfig",
    continual="reach rescored",
    experience="Replay",
    findings="ALIKE COLLAPSED FAST_TARGETS FEW_SUCCESSES FINDINGS HARDLY_CONSERVATIVE HIGH_RATE "
    "LONG_AGO LOST MOST_OOD NOT_LESS_ALPHA OVERESTIMATED QUICK_FAILURES REPEATS STOPPED "
    "SURE VERY_SURE alpha_off collapsed few_episodes few_updates fitting_alpha",
    fingerprints="compare fingerprint",
    fitting="bundle_of device rules_of",
    learners="CONSERVATIVE Fit LEARNERS Rules",
    monitors="Behaviour Monitor",
    notes="brief clone_risks fresh_starts",
    pipeline="train",
    policy_vectors="side_of",
    presets="preset",
    probe_states="choose_probes",
)
