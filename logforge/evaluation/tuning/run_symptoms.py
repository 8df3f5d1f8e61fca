"""What a run's own metrics tell: it ran away, it clones, it collapsed, it leaves the log, its α or its length is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from logforge.evaluation.tuning.symptoms import Patient, Symptom, told
from logforge.learning.training import (
    ALIKE,
    CONSERVATIVE,
    FAST_TARGETS,
    FINDINGS,
    HARDLY_CONSERVATIVE,
    HIGH_RATE,
    LONG_AGO,
    LOST,
    MOST_OOD,
    NOT_LESS_ALPHA,
    OVERESTIMATED,
    STOPPED,
    SURE,
    VERY_SURE,
    TrainConfig,
    alpha_off,
    clone_risks,
    collapsed,
    few_updates,
    fitting_alpha,
)


def run_symptoms(patient: Patient) -> Iterator[Symptom]:
    """Everything found, of the learner's first member."""
    if patient.learner in ("bc", "bc_success"):
        return
    yield from _runs_away(patient)
    yield from _clone(patient)
    yield from _collapsed(patient)
    yield from _unsupported(patient)
    yield from _alpha(patient)
    yield from _too_many_updates(patient)
    yield from _too_few_updates(patient)


def _runs_away(patient: Patient) -> Iterator[Symptom]:
    stopped = patient.run["stopped"].get(patient.learner)
    highest, limits = patient.facts.get("validation_max_q"), patient.limits
    beyond = highest is not None and highest > limits.high
    if stopped is None and not beyond:
        return
    config, rule = patient.config, FINDINGS["runs_away"]
    seen = (
        STOPPED.format(**stopped)
        if stopped
        else rule.words.format(max_q=highest, possible=patient.facts["possible_high"])
    )
    rates = {"learning_rate": config.learning_rate, "target_rate": config.target_rate}
    causes, remedies = zip(*(rule.why(case, **rates) for case in _why_away(config)), strict=True)
    figures = {"max_q": highest, "limit": limits.high, "kept_update": patient.facts["update"]}
    yield Symptom(rule.name, seen, "; ".join(causes), "; ".join((*remedies, NOT_LESS_ALPHA)), figures)


def _why_away(config: TrainConfig) -> list[str]:
    """Over-estimation feeds on itself through the targets; what lets it."""
    usual = TrainConfig()
    weak = config.algo in CONSERVATIVE and config.alpha < HARDLY_CONSERVATIVE
    causes = {
        "free_targets": config.backend == "d3rlpy" or not config.clip_targets,
        "high_rate": config.learning_rate >= HIGH_RATE * usual.learning_rate,
        "fast_targets": config.target_rate > FAST_TARGETS * usual.target_rate,
        "not_conservative": config.algo == "dqn" or weak,
    }
    return [case for case, holds in causes.items() if holds] or [""]


def _clone(patient: Patient) -> Iterator[Symptom]:
    facts, config = patient.facts, patient.config
    alike, gain, error = facts.get("clone_share"), facts.get("over_clone"), facts.get("over_clone_se", 0.0)
    if alike is None or alike < ALIKE or (gain is not None and gain > SURE * error):
        return
    measured = (
        ""
        if gain is None
        else f", and gains {gain:+.2g} ± {SURE * error:.2g} over it by the one-step measure"
    )
    fitting = fitting_alpha(patient.train.manifest.return_range)
    held = config.algo in CONSERVATIVE
    risk = next(clone_risks(config.alpha, patient.train), "") if held else ""
    too_large = held and fitting and config.alpha > 2 * fitting
    figures = {
        "clone_share": alike,
        "over_clone": gain,
        "over_clone_se": error,
        "alpha": config.alpha,
        "fitting_alpha": fitting,
    }
    case = "alpha" if too_large else "risk" if risk else ""
    yield told("clone", figures, case, learner=patient.learner, measured=measured, risk=risk)


def _collapsed(patient: Patient) -> Iterator[Symptom]:
    facts = patient.facts
    fallen = collapsed(facts, patient.limits.log_favourite, ALIKE)
    if fallen is None:
        return
    above = facts.get("q_above", 0.0)
    over = bool(patient.run["stopped"].get(patient.learner)) or above > OVERESTIMATED
    figures = {**fallen, "possible_high": facts.get("possible_high")}
    yield told("collapsed", figures, "overestimation" if over else "idling", q_above=above)


def _unsupported(patient: Patient) -> Iterator[Symptom]:
    share, config = patient.facts.get("ood_share"), patient.config
    if share is not None and share > MOST_OOD:
        case = "conservative" if config.algo in CONSERVATIVE else "free"
        yield told("unsupported", {"ood_share": share, "limit": MOST_OOD}, case, alpha=config.alpha)


def _alpha(patient: Patient) -> Iterator[Symptom]:
    config, seen = patient.config, patient.train.manifest.return_range
    if config.algo in CONSERVATIVE and (off := alpha_off(config.alpha, seen)):
        yield told("alpha_scale", off, size="large" if off["alpha"] > off["fitting_alpha"] else "small")


def _too_many_updates(patient: Patient) -> Iterator[Symptom]:
    facts: dict[str, Any] = patient.facts
    lost, error = facts.get("lost"), facts.get("lost_se")
    if lost is None or error is None or patient.run["stopped"].get(patient.learner):
        return
    spread = float(np.std(patient.train.returns))
    long_ago = facts["best_update"] <= LONG_AGO * facts["update"]
    if long_ago and lost > VERY_SURE * error and lost > LOST * spread:
        best = facts["best_update"]
        figures = {"lost": lost, "lost_se": error, "best_update": best, "updates": facts["update"]}
        yield told("too_many_updates", figures, error=SURE * error)


def _too_few_updates(patient: Patient) -> Iterator[Symptom]:
    if few := few_updates(patient.config):
        figures = {name: few.pop(name) for name in ("updates", "usual")}
        yield told("too_few_updates", figures, **few)
