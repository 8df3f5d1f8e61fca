"""What a run's own metrics tell: it ran away, it clones, it collapsed, it leaves the log, its α or its length is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from logforge.evaluation.tuning.choice import MOST_OOD
from logforge.evaluation.tuning.symptoms import Patient, Symptom
from logforge.learning.training.alarms import COLLAPSED
from logforge.learning.training.config import TrainConfig
from logforge.learning.training.learners import CONSERVATIVE
from logforge.learning.training.notes import clone_risks, few_updates, fitting_alpha

ALIKE: Final = 0.85
"""A policy that agrees with cloning in so many decisions and gains nothing over it is a clone. In `it-ops` policies that beat it by
20 points agreed in 0.55 – 0.84 of decisions, α = 4 in 0.89 – 0.94."""
SURE: Final = 2.0
"""So many standard errors."""
VERY_SURE: Final = 3.0
"""The best of several epochs is a little too good by being picked."""
LONG_AGO: Final = 0.7
"""The best checkpoint lies in this part of a run that went on for too long; what falls in the last epochs may rise again."""
HIGH_RATE: Final = 3.0
"""A learning rate so many times the default's is named as a cause."""


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
    seen = (
        f"it was stopped at update {stopped['update']:,}: {stopped['what']}"
        if stopped
        else f"max Q is {highest:.3g}, where {patient.facts['possible_high']:.3g} is the most a return can be"
    )
    causes, remedies = zip(*_why_away(patient.config), strict=True)
    yield Symptom(
        "runs_away",
        seen,
        "; ".join(causes),
        "; ".join(remedies) + "; a lower --alpha makes it worse",
        {"max_q": highest, "limit": limits.high, "kept_update": patient.facts["update"]},
    )


def _why_away(config: TrainConfig) -> Iterator[tuple[str, str]]:
    """Over-estimation feeds on itself through the targets; what lets it, and what to do."""
    usual = TrainConfig()
    found = False
    if config.backend == "d3rlpy" or not config.clip_targets:
        found = True
        yield (
            "nothing holds the targets in the range of possible returns",
            "--clip-targets (with --backend torch)",
        )
    if config.learning_rate >= HIGH_RATE * usual.learning_rate:
        found = True
        yield (
            f"the learning rate {config.learning_rate:g} is high",
            f"--learning-rate {usual.learning_rate:g}",
        )
    if config.target_rate > 10 * usual.target_rate:
        found = True
        yield f"target networks follow fast ({config.target_rate:g})", f"--target-rate {usual.target_rate:g}"
    if config.algo == "dqn" or (config.algo in CONSERVATIVE and config.alpha < 0.1):
        found = True
        yield "nothing holds down what the log never did (no or hardly any conservatism)", "--algo cql"
    if not found:
        yield "over-estimation feeds on itself", "fewer --updates, or a lower --learning-rate"


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
    risks = list(clone_risks(config.alpha, patient.train)) if config.algo in CONSERVATIVE else []
    if config.algo in CONSERVATIVE and fitting and config.alpha > 2 * fitting:
        cause = (
            f"alpha {config.alpha:g} is too large for returns of this size: the penalty outweighs the reward"
        )
        remedy = f"--alpha {fitting:.2g}, or choose one: logforge sweep"
    elif risks:
        cause, remedy = risks[0], "pay the outcome more, lower gamma, or a lower --alpha: logforge sweep"
    else:
        cause = "the log holds nothing that measurably beats what it does most"
        remedy = (
            "more varied logs (random or other agents' episodes); a sweep shows whether another alpha helps"
        )
    yield Symptom(
        "clone", f"{patient.learner} decides as cloning does in {alike:.0%} of held-out decisions{measured}", cause, remedy,
        {"clone_share": alike, "over_clone": gain, "over_clone_se": error, "alpha": config.alpha, "fitting_alpha": fitting},
    )  # fmt: skip


def _collapsed(patient: Patient) -> Iterator[Symptom]:
    facts, limits = patient.facts, patient.limits
    share, commonest = facts.get("favourite_share", 0.0), limits.log_favourite
    gained = facts.get("improvement", 0.0) > SURE * facts.get("improvement_se", 0.0)
    alike = facts.get("clone_share", 0.0) >= ALIKE  # then it is the clone's own
    if share <= COLLAPSED or commonest > COLLAPSED or gained or alike:
        return
    high = facts.get("possible_high")
    over = bool(patient.run["stopped"].get(patient.learner)) or facts.get("q_above", 0.0) > 0.05
    cause = (
        f"over-estimation (Q above what is possible in {facts.get('q_above', 0.0):.0%} of decisions)"
        if over
        else "an action that costs nothing looks safest: see the findings on the reward, if any"
    )
    remedy = (
        "--clip-targets, a higher --alpha, fewer --updates; lowering alpha makes it worse"
        if over
        else "let idling cost something (--step-cost 0.1 tries it), and pay progress"
    )
    yield Symptom(
        "collapsed",
        f"one action, {facts['favourite']!r}, in {share:.0%} of decisions (the log's commonest: {commonest:.0%}), and no improvement over "
        "the log",
        cause,
        remedy,
        {"favourite": facts["favourite"], "share": share, "log": commonest, "possible_high": high},
    )


def _unsupported(patient: Patient) -> Iterator[Symptom]:
    share = patient.facts.get("ood_share")
    if share is None or share <= MOST_OOD:
        return
    config = patient.config
    more = f"a higher --alpha (now {config.alpha:g})" if config.algo in CONSERVATIVE else "--algo cql"
    yield Symptom(
        "unsupported",
        f"{share:.0%} of decisions take an action that the log hardly ever takes there",
        "too little conservatism: what was never tried is over-estimated",
        f"{more}, or more exploring logs",
        {"ood_share": share, "limit": MOST_OOD},
    )


def _alpha(patient: Patient) -> Iterator[Symptom]:
    config, seen = patient.config, patient.train.manifest.return_range
    fitting = fitting_alpha(seen)
    held = config.algo in CONSERVATIVE
    if not held or not fitting or not seen or fitting / 2 <= config.alpha <= 2 * fitting:
        return
    scale, size = max(map(abs, seen)), "large" if config.alpha > fitting else "small"
    yield Symptom(
        "alpha_scale",
        f"alpha {config.alpha:g} with returns that reach {scale:.3g}",
        f"the penalty is measured against Q: for returns of this size it is {size}",
        f"--alpha {fitting:.2g} (0.3 suits ±1, 1 suits 10), or choose one: logforge sweep",
        {"alpha": config.alpha, "fitting_alpha": fitting, "largest_return": scale},
    )


def _too_many_updates(patient: Patient) -> Iterator[Symptom]:
    facts: dict[str, Any] = patient.facts
    lost, error = facts.get("lost"), facts.get("lost_se")
    if lost is None or error is None or patient.run["stopped"].get(patient.learner):
        return
    spread = float(np.std(patient.train.returns))
    long_ago = facts["best_update"] <= LONG_AGO * facts["update"]
    if long_ago and lost > VERY_SURE * error and lost > 0.05 * spread:
        yield Symptom(
            "too_many_updates",
            f"the improvement over the log fell by {lost:.2g} ± {SURE * error:.2g} since update {facts['best_update']:,}",
            "more updates are not better: Q overfits the log, or begins to run away",
            f"--updates {facts['best_update']}",
            {"lost": lost, "lost_se": error, "best_update": facts["best_update"], "updates": facts["update"]},
        )


def _too_few_updates(patient: Patient) -> Iterator[Symptom]:
    config = patient.config
    if few := few_updates(config):
        usual = TrainConfig().updates
        yield Symptom(
            "too_few_updates", few, "the run ended before values came back from the ends of episodes", f"--updates {usual}",
            {"updates": config.updates, "usual": usual},
        )  # fmt: skip
