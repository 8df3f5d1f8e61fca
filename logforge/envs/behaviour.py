"""Behaviour policies with exact probabilities: the rule of each world, noisy rules, lazy, random, and mixes of them.

A policy sees the visible columns and nothing else. A mix draws one of its parts for each episode; what is logged is the
probability that this part gave the action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from logforge.envs import it_ops, support
from logforge.envs.world import CHANGED, Bools, Floats, Ints, World
from logforge.schemas import UnknownName, UsageError

Visible = Callable[[World, Ints], Floats]
"""A policy of the rows' visible columns: rows (n, columns) to probabilities (n, actions)."""

PARTS = ("rule", "rule-N", "lazy", "random")
"""What a mix is made of; rule-N follows the rule and errs in N percent of its decisions."""
MIXES: Mapping[str, Mapping[str, float]] = {
    "mix": {"rule-10": 0.25, "rule-40": 0.25, "lazy": 0.3, "random": 0.2},
    "no-expert": {"lazy": 0.6, "random": 0.4},
}
"""Mixes with a name."""
_CHECKS = {
    "it-ops": ("clarify", "check_disk", "check_status", "list_releases", "query_logs", "test_connection"),
    "support-escalation": ("clarify", "check_service_status", "classify_ticket", "look_up_order", "search_articles"),
}  # fmt: skip
"""What somebody does who looks around."""
LOOKS = 0.3
"""The share of an erring policy's slips that are a look around; the others are any action at all."""


@dataclass(frozen=True)
class Behaviour:
    """A mix: its parts by name with the share of each. Of one part, it is that policy."""

    shares: tuple[tuple[str, float], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The parts, in order."""
        return tuple(name for name, _ in self.shares)

    def parts(self, uniforms: Floats) -> NDArray[np.intp]:
        """Which part acts in each episode, from a number in [0, 1) for each."""
        limits = np.cumsum([share for _, share in self.shares])
        found = np.searchsorted(limits, uniforms * limits[-1], side="right")
        parts: NDArray[np.intp] = np.minimum(found, len(limits) - 1)
        return parts


def behaviour(text: str) -> Behaviour:
    """A mix from its name (`mix`, `no-expert`, `rule`) or its parts with their shares (`rule-10:0.5,random:0.5`)."""
    if text in MIXES:
        return Behaviour(tuple(MIXES[text].items()))
    shares = []
    for item in text.split(","):
        name, _, share = item.strip().partition(":")
        part(name)
        try:
            weight = float(share or 1)
        except ValueError:
            weight = 0.0
        if not 0 < weight < float("inf"):
            raise UsageError(f"share {share!r} of {name} in {text!r}", "give a number above 0")
        shares.append((name, weight))
    total = sum(weight for _, weight in shares)
    return Behaviour(tuple((name, weight / total) for name, weight in shares))


def part(name: str) -> Visible:
    """The policy of this name, one of PARTS."""
    if name in ("rule", "lazy", "random"):
        return {"rule": rule, "lazy": lazy, "random": uniform}[name]
    stem, dash, percent = name.partition("-")
    if stem == "rule" and dash and not (percent.isdecimal() and int(percent) <= 100):
        wrong = f"policy {name!r}: N of rule-N is the percent of decisions that err, and {percent!r} is none"
        raise UsageError(wrong, "give a whole number from 0 to 100: rule-10")
    if stem != "rule" or not dash:
        raise UnknownName("policy", name, (*PARTS, *MIXES))
    return lambda world, states: noisy(world, states, int(percent) / 100)


def uniform(world: World, states: Ints) -> Floats:
    """Every action alike."""
    return np.full((len(states), len(world.actions)), 1 / len(world.actions))


def rule(world: World, states: Ints) -> Floats:
    """The rule that a competent desk goes by; always one action."""
    chances: Floats = np.eye(len(world.actions))[_RULES[world.name](world, states)]
    return chances


def noisy(world: World, states: Ints, noise: float) -> Floats:
    """The rule, but for a share of decisions: of those LOOKS look around, the rest are anything at all."""
    checks = np.isin(world.actions, _CHECKS[world.name])
    erring = LOOKS * checks / checks.sum() + (1 - LOOKS) / len(world.actions)
    chances: Floats = (1 - noise) * rule(world, states) + noise * erring
    return chances


def lazy(world: World, states: Ints) -> Floats:
    """The quickest thing that might do."""
    return _LAZY[world.name](world, states)


def _first(world: World, choices: list[tuple[Bools, str]], otherwise: str) -> NDArray[np.intp]:
    """In each row the action of the first condition that holds."""
    index = {name: number for number, name in enumerate(world.actions)}
    found = np.select([c for c, _ in choices], [index[name] for _, name in choices], index[otherwise])
    return found.astype(np.intp)


def _it_ops_rule(world: World, s: Ints) -> NDArray[np.intp]:
    """Logs, else the user; then the fix of what they say, at once; then a look whether it helped."""
    symptom, logs, hint = s[:, it_ops.SYMPTOM], s[:, it_ops.LOGS], s[:, it_ops.HINT]
    applied, line = s[:, it_ops.APPLIED], s[:, it_ops.CONNECTION]
    new = applied == 0
    return _first(
        world,
        [
            (s[:, CHANGED] == 1, "escalate_incident"),
            (logs == 0, "query_logs"),
            ((symptom == 0) & (hint == 0), "clarify"),
            (symptom == it_ops.SAYS_HARDWARE, "escalate_incident"),
            (new & (symptom == 1), "restart_service"),
            (new & (symptom == 2), "roll_back_release"),
            (new & (symptom == 3), "free_disk_space"),
            (new & (line == 0), "test_connection"),
            (new & (line == 2), "fail_over_database"),
            (new, "renew_certificate"),
            (s[:, it_ops.SEEN] == 0, "check_status"),
            (s[:, it_ops.SEEN] == it_ops.HEALTHY, "close_incident"),
        ],
        "escalate_incident",
    )


def _support_rule(world: World, s: Ints) -> NDArray[np.intp]:
    """Classify, asking when that is unclear; identity where an account is touched; then what the class calls for."""
    topic, article, order = s[:, support.TOPIC], s[:, support.ARTICLE], s[:, support.ORDER]
    how_to = topic == 3
    return _first(
        world,
        [
            (s[:, CHANGED] == 1, "escalate_ticket"),
            (s[:, support.DONE] > 0, "close_ticket"),
            (topic == 0, "classify_ticket"),
            (topic == support.UNCLEAR, "clarify"),
            (how_to & (article == 0), "search_articles"),
            (how_to & (article == 1), "send_article"),
            (s[:, support.ACCOUNT] == 0, "clarify"),
            (s[:, support.IDENTITY] == 0, "verify_identity"),
            (topic == 1, "reset_password"),
            (how_to | (topic == 4), "escalate_ticket"),
            (order == 0, "look_up_order"),
            (order == 1, "issue_refund"),
        ],
        "decline_refund",
    )


def _blend(
    world: World, choices: list[tuple[Bools, dict[str, float]]], otherwise: dict[str, float]
) -> Floats:
    """In each row the probabilities of the first condition that holds."""
    index = {name: number for number, name in enumerate(world.actions)}
    table = np.zeros((len(choices) + 1, len(world.actions)))
    for row, (_, chances) in enumerate([*choices, (None, otherwise)]):
        for name, chance in chances.items():
            table[row, index[name]] = chance
    which = np.select([c for c, _ in choices], list(range(len(choices))), len(choices))
    found: Floats = table[which]
    return found


def _it_ops_lazy(world: World, s: Ints) -> Floats:
    """A glance at the logs and the status, a restart whatever they say, and done."""
    unread, unchecked = s[:, it_ops.LOGS] == 0, s[:, it_ops.CHECKED] == 0
    untold = (s[:, it_ops.SYMPTOM] == 0) & (s[:, it_ops.HINT] == 0)
    return _blend(
        world,
        [
            (s[:, CHANGED] == 1, {"escalate_incident": 0.5, "close_incident": 0.3, "respond": 0.2}),
            (s[:, it_ops.APPLIED] > 0, {"close_incident": 0.7, "check_status": 0.2, "respond": 0.1}),
            (
                unread & unchecked,
                {"query_logs": 0.65, "check_status": 0.15, "restart_service": 0.1, "respond": 0.1},
            ),
            (
                untold & unchecked,
                {"clarify": 0.5, "check_status": 0.3, "respond": 0.1, "close_incident": 0.1},
            ),
            (unchecked, {"check_status": 0.7, "restart_service": 0.1, "respond": 0.1, "close_incident": 0.1}),
        ],
        {"restart_service": 0.7, "query_logs": 0.1, "respond": 0.1, "close_incident": 0.1},
    )


def _support_lazy(world: World, s: Ints) -> Floats:
    """The first article that is found, or off to somebody else."""
    return _blend(
        world,
        [
            (s[:, CHANGED] == 1, {"escalate_ticket": 0.5, "close_ticket": 0.3, "respond": 0.2}),
            (s[:, support.DONE] > 0, {"close_ticket": 0.8, "respond": 0.2}),
            (s[:, support.ARTICLE] == 1, {"send_article": 0.8, "respond": 0.1, "close_ticket": 0.1}),
            (s[:, support.ARTICLE] == 2, {"escalate_ticket": 0.7, "respond": 0.1, "close_ticket": 0.2}),
            (
                (s[:, support.TOPIC] == 0) | (s[:, support.TOPIC] == support.UNCLEAR),
                {"classify_ticket": 0.6, "search_articles": 0.15, "clarify": 0.1, "respond": 0.1, "close_ticket": 0.05},
            ),
        ],
        {"search_articles": 0.6, "clarify": 0.1, "escalate_ticket": 0.15, "close_ticket": 0.1, "respond": 0.05},
    )  # fmt: skip


_RULES = {"it-ops": _it_ops_rule, "support-escalation": _support_rule}
_LAZY = {"it-ops": _it_ops_lazy, "support-escalation": _support_lazy}
