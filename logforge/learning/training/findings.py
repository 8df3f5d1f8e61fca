"""What can be wrong with a run: one catalogue of rules, the limits they draw, and the words they are told in.

A rule is asked at one of three moments: while a member trains (alarms.py), at the end of training for the notes of `train.json`
(notes.py), and by `logforge doctor`. One symptom that is asked at several has one entry for each, side by side. Braces name the
figures that were found. docs/doctor.md has the tables of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

import numpy as np

from logforge.learning.training.config import TrainConfig
from logforge.shards import SplitArrays

PATIENCE: Final = 3
"""So many epochs in a row, each worse than the one before."""
TD_GROWTH: Final = 10.0
FIT_GROWTH: Final = 1.5
"""The batches' own TD error has to have grown too, so many times. Q that learns few episodes by heart errs more and more on others
while it fits its own: on 90 episodes of `it-ops` 10 times more in validation, and at most 1.2 times in batches; with targets that
feed on themselves both grow (1.7 times and more)."""
COLLAPSED: Final = 0.8
"""One action in more than this share of decisions."""
ALIKE: Final = 0.85
"""A policy that agrees with cloning in so many decisions and gains nothing over it is a clone; its favourite is the clone's own. In
`it-ops` policies that beat it by 20 points agreed in 0.55 – 0.84 of decisions, α = 4 in 0.89 – 0.94."""
SURELY_ALIKE: Final = 0.95
"""The same while training, which names no clones: only where hardly a decision differs is a collapse the log's own and no alarm."""
SURE: Final = 2.0
"""So many standard errors."""
VERY_SURE: Final = 3.0
"""The best of several epochs is a little too good by being picked."""
LONG_AGO: Final = 0.7
"""The best checkpoint lies in this part of a run that went on for too long; what falls in the last epochs may rise again."""
LOST: Final = 0.05
"""A loss since then below this part of the returns' spread is not worth a word."""
HIGH_RATE: Final = 3.0
"""A learning rate so many times the default's is named as a cause."""
FAST_TARGETS: Final = 10
"""So is a target rate so many times the default's, ..."""
HARDLY_CONSERVATIVE: Final = 0.1
"""... and an α below this."""
OVERESTIMATED: Final = 0.05
"""Q above what is possible in more than this share of decisions explains a collapse."""
MOST_OOD: Final = 0.1
"""Out-of-distribution actions (logforge/learning/training/monitors.py) in more than this share of decisions: FQE overrates such policies, and a sweep takes no
setting of theirs. In `it-ops` good policies stayed below 0.06, those that failed were above 0.1."""
SMALL_TRAIN: Final = 500
"""Below about this many train episodes no gain over cloning was measured (docs/design.md, §9)."""
FEW_SUCCESSES: Final = 0.15
"""Of episodes with a known outcome. Simulated logs without competent behaviour had 0.07 and 0.13, mixes with it 0.28 and 0.30."""
REPEATS: Final = 3
"""An action that is paid so often in one episode, before its end, can be farmed."""
QUICK_FAILURES: Final = 5
"""Fewer tell no mean return."""
RANDOM_START: Final = 0.1
"""Target networks that hold more than this share of their random start have not had the updates to learn what follows."""
RISKY: Final = 0.1
"""Share of decisions that CQL at rest gets wrong, from which on it is said."""

Figures = dict[str, Any]


class Moment(Enum):
    """When a rule is asked."""

    TRAINING = "while training"
    END = "at the end of training"
    DOCTOR = "by `logforge doctor`"


class Case(NamedTuple):
    """One cause and what to do about it; `words` where they are not the rule's own."""

    cause: str
    remedy: str
    words: str = ""


class Told(NamedTuple):
    """A finding in words."""

    words: str
    cause: str
    remedy: str


@dataclass(frozen=True)
class Rule:
    """A thing that can be wrong, asked at one moment. `tests` says what is looked for and `follows` what then happens, or the usual
    cause: the row in the docs, which an alarm and a finding of the doctor have."""

    name: str
    moment: Moment
    tests: str
    follows: str
    words: str
    cases: Mapping[str, Case]

    def tell(self, case: str = "", **figures: Any) -> Told:
        """The words for these figures, in one of the rule's cases."""
        cause, remedy = self.why(case, **figures)
        words = self.cases[case].words or self.words
        return Told(words.format(**figures, cause=cause, remedy=remedy), cause, remedy)

    def why(self, case: str, **figures: Any) -> tuple[str, str]:
        """The cause and the remedy alone."""
        chosen = self.cases[case]
        return chosen.cause.format(**figures), chosen.remedy.format(**figures)


def _alarm(name: str, tests: str, words: str, remedy: str, follows: str = "the member stops") -> Rule:
    return Rule(name, Moment.TRAINING, tests, follows, words, {"": Case("", remedy)})


def _note(name: str, words: str, cause: str = "", remedy: str = "", **others: Case) -> Rule:
    return Rule(name, Moment.END, "", "", words, {"": Case(cause, remedy), **others})


def _finding(name: str, tests: str, follows: str, words: str, cases: Mapping[str, Case] | Case) -> Rule:
    cases = {"": cases} if isinstance(cases, Case) else cases
    return Rule(name, Moment.DOCTOR, tests, follows, words, cases)


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def enough_updates(target_rate: float) -> int:
    """From so many updates on target networks hold no more than RANDOM_START of their start."""
    return math.ceil(math.log(RANDOM_START) / math.log(1 - target_rate))


_USUAL: Final = TrainConfig()
_CLIP: Final = "clip targets (--clip-targets) where they are not"
_FEW_UPDATES: Final = (
    "{updates:,} updates are few: the target networks (--target-rate {target_rate:g}) still hold {kept:.0%} of their random start, "
    "so Q knows little of what follows a step ({usual:,} is the preset)"
)
_NO_GAIN: Final = "below about {needed} no gain over cloning was measured"
_PAY_MORE: Final = "pay the outcome more, lower gamma, or train with a lower --alpha"
NOT_LESS_ALPHA: Final = "a lower --alpha makes it worse"
"""Behind every remedy for Q that runs away."""
STOPPED: Final = "it was stopped at update {update:,}: {what}"
"""How the doctor repeats an alarm."""

CATALOGUE: Final = (
    _finding(
        "broken_bundle",
        "a policy does not load, or belongs to another dataset",
        "altered files",
        "the policy {policy} cannot be used: {what}",
        Case("its files were altered, or belong to another dataset", "{advice}"),
    ),
    _alarm(
        "not_finite",
        "a loss or a score is NaN or infinite",
        "a loss or a score is NaN or infinite",
        "lower --learning-rate",
    ),
    _alarm(
        "q_runs_away",
        "max Q lies above `possible_high` + α + the width of the possible range (half of it where targets are not clipped), and has "
        "grown for three epochs",
        "max Q went from {first:.3g} to {last:.3g} in {epochs} epochs, where {possible:.3g} is the most a return can be and up to "
        "{limit:.3g} is put down to the penalty and to errors",
        f"{_CLIP}, or lower --learning-rate; {NOT_LESS_ALPHA}",
    ),
    _alarm(
        "td_error_grows",
        f"the TD error is more than {TD_GROWTH:g} times its least, twice in a row, and above the variance of returns; and that of the "
        f"batches is more than {FIT_GROWTH:g} times its least (on few episodes validation alone grows: Q learns them by heart, which "
        "is no divergence)",
        f"the TD error grew from {{least:.3g}} to {{last:.3g}}: more than {TD_GROWTH:g} times, and beyond what knowing nothing costs "
        "({know_nothing:.3g}, the variance of returns)",
        f"{_CLIP}, lower --learning-rate, or bring more episodes",
    ),
    _note(
        "runs_away",
        "max Q {max_q:.3g} is above {high:.3g}, the most that a return can be (good runs show this too)",
    ),
    _finding(
        "runs_away",
        "Q far above what is possible, or an alarm",
        "targets not clipped, a high learning rate, fast targets, no conservatism",
        "max Q is {max_q:.3g}, where {possible:.3g} is the most a return can be",
        {
            "free_targets": Case(
                "nothing holds the targets in the range of possible returns",
                "--clip-targets (with --backend torch)",
            ),
            "high_rate": Case(
                "the learning rate {learning_rate:g} is high", f"--learning-rate {_USUAL.learning_rate:g}"
            ),
            "fast_targets": Case(
                "target networks follow fast ({target_rate:g})", f"--target-rate {_USUAL.target_rate:g}"
            ),
            "not_conservative": Case(
                "nothing holds down what the log never did (no or hardly any conservatism)", "--algo cql"
            ),
            "": Case("over-estimation feeds on itself", "fewer --updates, or a lower --learning-rate"),
        },
    ),
    _finding(
        "paid_loop",
        "an action is paid again and again, and going on with it returns more than success",
        "a bonus without `once`",
        "{action!r} is paid {pay:+.2g} again and again (up to {most} times in one episode)",
        {
            "": Case(
                "the reward can be farmed: to go on with it returns {returns:.3g}, successes return {success:.3g}",
                "pay it once (`once`, `max_per_episode`) or as a potential; `logforge reward lint` names the term",
            ),
            "spec": Case("the reward spec can be farmed", "{advice}", "{what}"),
        },
    ),
    _finding(
        "early_exit",
        "quick failures return more than successes",
        "steps cost more than success pays",
        "{quick_failures} quick failures return {their_return:.3g} on average, successes {success_return:.3g}",
        {
            "": Case(
                "to give up at once is what the reward makes best",
                "pay success more, charge failure, or lower the cost of a step; `logforge reward lint` shows the break-even",
            ),
            "spec": Case("to give up is what the spec makes best", "{advice}", "{what}"),
        },
    ),
    _finding(
        "no_outcomes",
        "no outcome in the log",
        "no competent behaviour in the logs",
        "no train episode says whether it succeeded",
        Case(
            "the logs tell no outcome",
            "log `success`, or derive it in the reward spec; without it only the rewards tell good from bad",
        ),
    ),
    _finding(
        "few_successes",
        f"under {_percent(FEW_SUCCESSES)} successes",
        "no competent behaviour in the logs",
        "{successes} of {known} train episodes with a known outcome succeeded ({share:.0%})",
        Case(
            "no competent behaviour in the logs: coverage decides, not the algorithm",
            "add episodes of a better agent, of a rule or of people; no setting makes up for them",
        ),
    ),
    _note("few_episodes", "{episodes} train episodes: {cause}", _NO_GAIN),
    _finding(
        "few_episodes",
        f"fewer than {SMALL_TRAIN} train episodes",
        "too little data",
        "{episodes} train episodes",
        Case(
            f"{_NO_GAIN}: rare good moves are not seen often enough",
            "ingest more logs; until then cloning of the successes is the better controller",
        ),
    ),
    _note(
        "clone",
        "clone risk: with alpha {alpha:g} CQL comes to rest at another action than the best in {astray:.0%} of this log's decisions "
        "(at the log's favourite in {cloned:.0%}); the best is worth only {gap:.2g} more there: {remedy}",
        remedy=_PAY_MORE,
        spec=Case(
            "",
            _PAY_MORE,
            "clone risk: by the reward spec, CQL finds the best actions of even logs up to alpha {limit:.2g}, not with {alpha:g} "
            "(`logforge reward lint` shows it): {remedy}",
        ),
    ),
    _finding(
        "clone",
        f"decides as cloning does in {_percent(ALIKE)} or more, and gains nothing over it",
        "α too large, or nothing better in the log",
        "{learner} decides as cloning does in {clone_share:.0%} of held-out decisions{measured}",
        {
            "alpha": Case(
                "alpha {alpha:g} is too large for returns of this size: the penalty outweighs the reward",
                "--alpha {fitting_alpha:.2g}, or choose one: logforge sweep",
            ),
            "risk": Case("{risk}", "pay the outcome more, lower gamma, or a lower --alpha: logforge sweep"),
            "": Case(
                "the log holds nothing that measurably beats what it does most",
                "more varied logs (random or other agents' episodes); a sweep shows whether another alpha helps",
            ),
        },
    ),
    _alarm(
        "collapsed",
        f"one action in more than {_percent(COLLAPSED)} of decisions, the log's commonest in no more than that, and no improvement "
        "over the log",
        "one action, {favourite!r}, in {share:.0%} of the decisions (the log's commonest: {log:.0%}), and no improvement over the log",
        "`logforge doctor` tells the cause: over-estimation, or a reward that pays for it",
        "a warning",
    ),
    _finding(
        "collapsed",
        "one action everywhere, no improvement",
        "over-estimation (lowering α makes it worse), or a reward that pays for idling",
        "one action, {favourite!r}, in {share:.0%} of decisions (the log's commonest: {log:.0%}), and no improvement over the log",
        {
            "overestimation": Case(
                "over-estimation (Q above what is possible in {q_above:.0%} of decisions)",
                "--clip-targets, a higher --alpha, fewer --updates; lowering alpha makes it worse",
            ),
            "idling": Case(
                "an action that costs nothing looks safest: see the findings on the reward, if any",
                "let idling cost something (--step-cost 0.1 tries it), and pay progress",
            ),
        },
    ),
    _finding(
        "unsupported",
        f"over {_percent(MOST_OOD)} of decisions take what the log hardly ever takes",
        "too little conservatism",
        "{ood_share:.0%} of decisions take an action that the log hardly ever takes there",
        {
            "conservative": Case(
                "too little conservatism: what was never tried is over-estimated",
                "a higher --alpha (now {alpha:g}), or more exploring logs",
            ),
            "free": Case(
                "too little conservatism: what was never tried is over-estimated",
                "--algo cql, or more exploring logs",
            ),
        },
    ),
    _note(
        "alpha_scale",
        "returns reach {largest_return:.3g}: alpha {alpha:g} suits returns of another size, about {fitting_alpha:.2g} would fit "
        "({remedy})",
        remedy="choose it on validation: `logforge sweep`",
    ),
    _finding(
        "alpha_scale",
        "α does not suit the size of returns",
        "rewards were rescaled",
        "alpha {alpha:g} with returns that reach {largest_return:.3g}",
        Case(
            "the penalty is measured against Q: for returns of this size it is {size}",
            "--alpha {fitting_alpha:.2g} (0.3 suits ±1, 1 suits 10), or choose one: logforge sweep",
        ),
    ),
    _note("too_few_updates", _FEW_UPDATES),
    _finding(
        "too_few_updates",
        f"target networks still hold over {_percent(RANDOM_START)} of their random start (fewer than "
        f"{enough_updates(_USUAL.target_rate)} updates at `--target-rate {_USUAL.target_rate:g}`); `train` and `evaluate` say it too, as "
        "they do of few episodes",
        "the run was cut short",
        _FEW_UPDATES,
        Case("the run ended before values came back from the ends of episodes", "--updates {usual}"),
    ),
    _finding(
        "too_many_updates",
        "the improvement fell, measurably, since an early checkpoint",
        "more updates are not better",
        "the improvement over the log fell by {lost:.2g} ± {error:.2g} since update {best_update:,}",
        Case(
            "more updates are not better: Q overfits the log, or begins to run away",
            "--updates {best_update}",
        ),
    ),
)
"""By symptom, the likeliest root first: a run that ran away also does what the log never did, and says nothing of its α."""


def _asked(moment: Moment) -> Mapping[str, Rule]:
    return {rule.name: rule for rule in CATALOGUE if rule.moment is moment}


ALARMS: Final = _asked(Moment.TRAINING)
NOTES: Final = _asked(Moment.END)
FINDINGS: Final = _asked(Moment.DOCTOR)


def collapsed(row: Mapping[str, Any], commonest: float, alike: float) -> Figures | None:
    """Whether one action is nearly all a policy does, though not the log's, and gains nothing: the figures, or None. From `alike`
    on its agreement with cloning makes it the clone's own."""
    share = row.get("favourite_share", 0.0)
    gained = row.get("improvement", 0.0) > SURE * row.get("improvement_se", 0.0)
    if row.get("clone_share", 1.0) >= alike or gained or not share > COLLAPSED >= commonest:
        return None
    return {"favourite": row["favourite"], "share": share, "log": commonest}


def few_episodes(train: SplitArrays) -> Figures | None:
    """Whether the log is too small for a gain over cloning."""
    count = int((~train.augmented).sum())
    return {"episodes": count, "needed": SMALL_TRAIN} if count < SMALL_TRAIN else None


def few_updates(config: TrainConfig) -> Figures | None:
    """Whether a run was too short to learn what follows a step; None where it was not, where nothing is learnt of that (cloning), and
    where nothing began at random (warm start)."""
    kept = (1 - config.target_rate) ** config.updates
    if config.algo == "bc" or config.backend != "torch" or config.warm_start or kept <= RANDOM_START:
        return None
    return {
        "updates": config.updates,
        "target_rate": config.target_rate,
        "kept": kept,
        "usual": _USUAL.updates,
    }


def alpha_off(alpha: float, seen: tuple[float, float] | None) -> Figures | None:
    """Whether α suits returns of another size."""
    fitting = fitting_alpha(seen)
    if not seen or not fitting or fitting / 2 <= alpha <= 2 * fitting:
        return None
    return {"alpha": alpha, "fitting_alpha": fitting, "largest_return": max(map(abs, seen))}


def fitting_alpha(seen: tuple[float, float] | None) -> float | None:
    """The α that was measured to suit returns of this size: 0.3 at ±1, 1 at up to 10; between and beyond, the line through both."""
    scale = max(abs(bound) for bound in seen) if seen else 0.0
    return 0.3 * float(scale ** np.log10(1 / 0.3)) if scale else None
