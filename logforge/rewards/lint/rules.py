"""The rules of `logforge reward lint` that need no logs: each looks at a spec tried out in the small world."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import polars as pl

from logforge.rewards import unusual
from logforge.rewards.lint.trial import Trial, paid_terms
from logforge.rewards.lint.world import AGAIN, ASK, BUSY, FAIL, FILLERS, GHOST, STOP, TALK, WORK
from logforge.rewards.sql import value, when
from logforge.schemas import KNOWN, RewardSpec, Term

TURNS = 40
"""How often a cycle is gone round."""
Level = Literal["error", "warning", "note"]
Figures = dict[str, float | str | None]
_TINY = 1e-9
_DOINGS = {
    BUSY: "make calls that nobody needs", AGAIN: "repeat the last call", FAIL: "make calls that fail",
    GHOST: "call tools that are not offered", ASK: "ask the user", TALK: "talk",
}  # fmt: skip
_WORLDS = {
    "result", "result_status", "error_class", "user_reply", "latency_s", "logged_reward", "prev_result_status",
    "prev_error_class", "errors_so_far", "done_so_far", "runtime_error", "no_progress", "completeness", "came_back",
    "premature_close", "success", "score",
}  # fmt: skip
"""Columns that tell what the world answered; the others are the agent's to choose, or constant."""


@dataclass(frozen=True)
class Finding:
    """One thing to know of a spec: the rule, how bad it is, the terms it is about, what, and what to do."""

    rule: str
    level: Level
    terms: tuple[str, ...]
    what: str
    remedy: str
    figures: Figures = field(default_factory=dict)


def spec_findings(spec: RewardSpec, trial: Trial, typical_steps: int) -> list[Finding]:
    """Everything found in the small world and in the spec itself. `typical_steps` is how long a success takes."""
    if math.isnan(trial.returns[trial.solve]):
        remedy = "guard the inputs with coalesce, or mark the term optional"
        return [
            Finding("no_reward", "error", (), "the reward is null even where the log says everything", remedy)
        ]
    paying = Paying.of(spec, trial)
    return [
        *_discount(spec),
        *_early_exit(trial, paying, typical_steps),
        *_cycles(trial),
        *_terms(spec, paying),
        *_firing(spec, paying),
        *_signs(spec, trial, paying),
        *_layers(spec),
    ]


@dataclass(frozen=True)
class Paying:
    """The least and the most that each term pays at a step of the small world, and at how many of its steps it pays."""

    least: dict[str, float]
    most: dict[str, float]
    share: dict[str, float]

    @classmethod
    def of(cls, spec: RewardSpec, trial: Trial) -> Paying:
        """Read off the trial, and off the term where it pays a number: it may fire on words that the small world lacks."""
        rows = (
            trial.terms.group_by("term")
            .agg(
                pl.col("value").min().alias("least"),
                pl.col("value").max().alias("most"),
                (pl.col("value") != 0).mean().alias("share"),
            )
            .iter_rows()
        )
        found = {name: (least or 0.0, most or 0.0, share or 0.0) for name, least, most, share in rows}
        for name, term, _ in spec.entries():
            if isinstance(term.value, float) and not term.potential:
                pays = term.value * term.scale
                found[name] = (min(pays, 0.0), max(pays, 0.0), found[name][2])
        return cls(*({name: item[i] for name, item in found.items()} for i in range(3)))


def _discount(spec: RewardSpec) -> Iterator[Finding]:
    if told := unusual("gamma", spec.gamma):
        remedy = "take 0.95 to 0.99, unless so few steps decide"
        yield Finding("short_sighted", "warning", (), told, remedy, {"gamma": spec.gamma})


def _early_exit(trial: Trial, paying: Paying, typical_steps: int) -> Iterator[Finding]:
    break_even = trial.break_even(trial.spec.gamma)
    if break_even is None or break_even >= typical_steps:
        return
    stop, solve = trial.returns[STOP], trial.returns[trial.solve]
    if break_even:
        worth = f"and a success of {break_even} steps no more; successes take about {typical_steps}"
    else:
        worth = f"and even the shortest success only {solve:.3g}"
    best = (
        trial.break_even(1.0, honest=True)
        if any(term.scorer for _, term, _ in trial.spec.entries())
        else None
    )
    if best:
        worth += f" (could its scorers tell success from failure: up to {best} steps, undiscounted)"
    costs = [name for name, least in paying.least.items() if least < 0 and trial.spec.term(name).at == "step"]
    yield Finding(
        "early_exit", "error", tuple(sorted(costs)), f"to stop at once is worth {stop:.3g}, {worth}",
        "pay a true outcome (`when: success`, `at: terminal`) that is worth more than the steps it takes cost",
        {"break_even_steps": break_even, "break_even_if_honest": best, "typical_steps": typical_steps,
         "stop_return": stop, "success_return": solve},
    )  # fmt: skip


class _Round(NamedTuple):
    """A cycle gone round often: what a turn pays at last, the terms that pay then, and those that pay at all."""

    cycle: tuple[str, ...]
    gain: float
    farmed: tuple[str, ...]
    paid: tuple[str, ...]


def _cycles(trial: Trial) -> Iterator[Finding]:
    """What gets nowhere and pays: for ever, or until a limit is reached."""
    singles, pairs = ((filler,) for filler in FILLERS), itertools.permutations(FILLERS, 2)
    rounds = list(_rounds(trial, [*singles, *pairs]))
    endless: list[_Round] = []
    for item in rounds:  # a cycle of two is told only where neither half pays alone
        told = {part for other in endless for part in other.cycle if other.cycle != item.cycle}
        if item.gain > _TINY and not told & set(item.cycle):
            endless.append(item)
    yield from _paid_cycles(trial, endless)
    for item in rounds:
        if len(item.cycle) == 1 and item.gain <= _TINY:
            yield from _bounded(trial, item)


def _rounds(trial: Trial, cycles: list[tuple[str, ...]]) -> Iterator[_Round]:
    """What still pays half as much in the later turns as in the earlier ones counts as endless; what fades does not."""
    solved = trial.world.solved
    frames = trial.judged([solved(cycle * TURNS) for cycle in cycles]).partition_by("walk", as_dict=True)
    for cycle in cycles:
        steps = frames[("/".join(solved(cycle * TURNS)),)].head(len(cycle) * TURNS)
        early, late = steps.head(len(steps) // 2), steps.tail(len(steps) // 2)
        first, last = float(early["reward"].sum()), float(late["reward"].sum())
        gain = last if last < 0 or last > first / 2 else 0.0
        sums = _sums(early), _sums(late)
        farmed = [name for name, pay in sums[1].items() if pay > _TINY and pay > sums[0].get(name, 0.0) / 2]
        paid = [name for name, pay in sums[0].items() if pay > _TINY]
        yield _Round(cycle, gain / (TURNS / 2), tuple(sorted(farmed)), tuple(sorted(paid)))


def _sums(steps: pl.DataFrame) -> dict[str, float]:
    """What each term pays in some steps, together."""
    return dict(paid_terms(steps).group_by("term").agg(pl.col("value").sum()).iter_rows())


def _paid_cycles(trial: Trial, endless: list[_Round]) -> Iterator[Finding]:
    """One finding for all cycles that the same terms pay the same."""
    outcome = trial.outcome
    for (farmed, gain), found in itertools.groupby(sorted(endless, key=_payment), key=_payment):
        cycles = [item.cycle for item in found]
        turns = math.ceil(outcome / gain - _TINY) if outcome > 0 else 0
        more = (
            f"{turns:,} turns are worth more than a success" if turns else "and success adds nothing to that"
        )
        yield Finding(
            "paid_cycle", "error", farmed,
            f"to {', or to '.join(map(_doing, cycles))} pays {gain:+.3g} a turn without end: {more}",
            "pay it once (`once`, `max_per_episode`, `diminishing`), or make it a potential",
            {"gain_per_turn": gain, "cycles": ", ".join(map("/".join, cycles)), "turns_worth_success": turns},
        )  # fmt: skip


def _payment(item: _Round) -> tuple[tuple[str, ...], float]:
    return item.farmed, round(item.gain, 9)


def _bounded(trial: Trial, item: _Round) -> Iterator[Finding]:
    if item.farmed:
        yield Finding(
            "unbounded", "warning", item.farmed,
            f"to {_doing(item.cycle)} pays every time, though other terms take more: {item.gain:+.3g} a turn",
            "bound it (`once`, `max_per_episode`, `diminishing`), or make it a potential",
            {"gain_per_turn": item.gain},
        )  # fmt: skip
    elif item.paid and trial.returns_of([walk := trial.world.solved(item.cycle)])["/".join(walk)] > (
        trial.returns[trial.solve] + _TINY
    ):
        yield Finding(
            "paid_detour", "note", item.paid, f"to {_doing(item.cycle)} before working pays a little, up to a limit",
            "see that the detour is wanted",
        )  # fmt: skip


def _doing(cycle: tuple[str, ...]) -> str:
    return " and to ".join(_DOINGS[part] for part in cycle)


def _terms(spec: RewardSpec, paying: Paying) -> Iterator[Finding]:
    for name, term, _ in spec.entries():
        columns = {*when(term).columns, *value(term).columns}
        bounded = term.limit is not None or term.diminishing is not None
        pays = not term.potential and (paying.most[name] > 0 or term.scorer is not None)
        if pays and _own_words(term, columns):
            yield Finding(
                "own_words", "note" if bounded else "error" if _beyond(spec, term, name, paying) else "warning", (name,),
                "the agent's own words and choices alone decide it: it can be had by saying the right thing",
                "pay what the world answers (`result_status`, `success`, `score`), or keep it small and bounded",
                {"columns": ", ".join(sorted(columns)) or "scorer"},
            )  # fmt: skip
        if pays and term.at == "step" and not bounded and term.scorer is None and columns:
            yield Finding(
                "shaping", "warning", (name,), "pay on the way that is no potential can change which policy is best",
                "write it as `potential: true` over what is known before the step, or bound it",
            )  # fmt: skip
        if term.at == "end" and "success" in columns:
            yield Finding(
                "outcome_at_truncation", "warning", (name,), "a truncated episode is paid as if it had ended",
                "pay outcomes `at: terminal`",
            )  # fmt: skip


def _beyond(spec: RewardSpec, term: Term, name: str, paying: Paying) -> bool:
    """Whether saying the right words at every step, which the small world cannot try, pays more than a step costs."""
    if term.at != "step" or term.scorer is not None or paying.share[name]:
        return False
    standing = sum(
        other.value * other.scale
        for _, other, _ in spec.entries()
        if isinstance(other.value, float) and other.at == "step" and when(other).text == "TRUE"
    )
    return paying.most[name] + standing > _TINY


def _own_words(term: Term, columns: set[str]) -> bool:
    if term.scorer is not None:
        from logforge.rewards.scorers import reads_of

        return reads_of(term.scorer) == "own words" and not columns & _WORLDS
    return not columns & _WORLDS and any(KNOWN[column] == "choice" for column in columns)


def _firing(spec: RewardSpec, paying: Paying) -> Iterator[Finding]:
    for name, term, _ in spec.entries():
        nothing = when(term).text == "FALSE" or (
            isinstance(term.value, float) and term.value * term.scale == 0
        )
        if nothing:
            yield Finding(
                "never_pays",
                "warning",
                (name,),
                "the term never pays anything",
                "remove it, or mend its condition",
            )
        elif paying.share[name] == 0 and not term.potential and term.scorer is None:
            yield Finding(
                "never_fires", "note", (name,), "it never fires in the small world (which knows no particular arguments)",
                "see with --store whether it fires on the logs",
            )  # fmt: skip
        elif (
            when(term).text != "TRUE"
            and paying.share[name] == 1
            and term.at == "step"
            and isinstance(term.value, float)
        ):
            yield Finding(
                "always_fires", "warning", (name,), "its condition holds at every step of the small world",
                "drop the condition, or mend it",
            )  # fmt: skip


_FAULTS = (FAIL, GHOST, AGAIN)
_BAD_NAMES = {"penalty", "cost", "error", "errors", "invalid", "loop", "failed", "failure"}
_GOOD_NAMES = {"reward", "bonus", "solved", "success"}


def _signs(spec: RewardSpec, trial: Trial, paying: Paying) -> Iterator[Finding]:
    """A term that pays for nothing but faults, or takes for nothing but success; and one whose name says the reverse of its sign."""
    counted = trial.terms.filter(pl.col("value") != 0).group_by("term").agg(
        (~pl.col("habit").is_in(_FAULTS)).sum().alias("sound"),
        (~((pl.col("habit") == STOP) & pl.col("success") | (pl.col("habit") == WORK))).sum().alias("other"),
    )  # fmt: skip
    rest = {name: (sound, other) for name, sound, other in counted.iter_rows()}
    for name, term, _ in spec.entries():
        if term.potential or name not in rest:
            continue
        sound, other = rest[name]
        words = set(name.split("_"))
        if paying.most[name] > 0 >= paying.least[name] and (not sound or words & _BAD_NAMES):
            yield _sign(
                name,
                "fires at nothing but faults" if not sound else "is named like a fault",
                paying.most[name],
            )
        if paying.least[name] < 0 <= -paying.most[name] and (
            not other or (words & _GOOD_NAMES and not words & _BAD_NAMES)
        ):
            yield _sign(
                name,
                "fires at nothing but success" if not other else "is named like a reward",
                paying.least[name],
            )


def _sign(name: str, how: str, pays: float) -> Finding:
    return Finding("sign", "error", (name,), f"it {how} and pays {pays:+g}", "turn its sign", {"pays": pays})


def _layers(spec: RewardSpec) -> Iterator[Finding]:
    for name, layer in spec.layers.items():
        if layer.normalise == "none" and len(spec.layers) > 1:
            yield Finding(
                "unnormalised_layer", "error", tuple(sorted(layer.terms)),
                f"layer {name} is not normalised: its weight of {layer.weight:g} does not say what it is worth",
                "leave `normalise` at `spread`",
            )  # fmt: skip
    if spec.layers and spec.terms:
        yield Finding(
            "unlayered_terms", "warning", tuple(sorted(spec.terms)), "terms beside the layers count at their own size",
            "put them into a layer, or know that their scale is theirs alone",
        )  # fmt: skip
    yield from _scale_ratio(spec)


def _scale_ratio(spec: RewardSpec) -> Iterator[Finding]:
    sizes = {
        name: abs(term.value * term.scale * term.weight)
        for name, term, layer in spec.entries()
        if isinstance(term.value, float) and layer is None and term.value * term.scale
    }
    if sizes and max(sizes.values()) > 1000 * min(sizes.values()):
        small, large = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
        ratio = sizes[large] / sizes[small]
        yield Finding(
            "scale_ratio", "warning", (small, large), f"{large} is {ratio:,.0f} times {small}: the smaller one drowns",
            "bring them closer", {"ratio": ratio},
        )  # fmt: skip
