"""What each method of credit gives the steps of a split: by name, with what it needs and what it promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from logforge.evaluation.credit.decomposition import Decomposition, decompose
from logforge.evaluation.credit.targets import Flags, targets_of
from logforge.learning.ope import ByMember
from logforge.rewards import Floats, returns_to_go
from logforge.schemas import PROPENSITY_KINDS, UnknownName
from logforge.shards import Shard, SplitArrays

_ESTIMATED = PROPENSITY_KINDS.index("estimated")

BONUS: Final = 0.05
"""What `shaped` pays for a command that worked."""


@dataclass(frozen=True)
class Values:
    """Values of one policy on a split: V of its N + E observations, Q of its N logged actions, and π/μ of them."""

    policy: str
    states: Floats
    taken: Floats
    ratios: Floats
    """NaN where the log has no propensity."""
    unsettled: str
    """Why the values are weak; empty when the fit has settled."""
    version: str = ""
    """Hash of the policy's weights and of the options of the fit."""
    members: ByMember | None = None
    """The same `states` and `taken` by each member of the fit."""

    def each(self) -> Iterator[Values]:
        """The values of each member of the fit; nothing where they are not known."""
        if self.members is not None:
            for states, taken in zip(*self.members, strict=True):
                yield replace(self, states=states, taken=taken, members=None)


@dataclass(frozen=True)
class Evidence:
    """What methods work from: a split of N steps and, for those that ask for it, more than its rewards."""

    shard: Shard
    train: SplitArrays
    values: Values | None = None
    worked: Flags | None = None
    """Whether each step is a command that worked."""
    discounts: Floats | None = None
    """One for each step; None: the dataset's γ."""
    n: int = 3
    lam: float = 0.95

    @property
    def known(self) -> Values:
        """The values, which methods that need them were given."""
        assert self.values is not None, "values are fitted for the methods that need them"
        return self.values


class Credit(NamedTuple):
    """A method's credit for N steps, and what must be said of it."""

    amounts: Floats
    notes: tuple[str, ...] = ()


class Method(NamedTuple):
    """A method of credit: what it needs, its options, and whether what it gives sums to each episode's rewards."""

    name: str
    meaning: str
    give: Callable[[Evidence], Credit]
    needs: Literal["rewards", "values", "train split", "results"] = "rewards"
    sums: bool = False
    options: tuple[str, ...] = ()
    clock: bool = False
    """Whether it can discount by real time: values are fitted with one γ a step."""


def _counterfactual(evidence: Evidence) -> Credit:
    values = evidence.known
    return Credit(values.taken - values.states[evidence.shard.observation_rows])


def _target(kind: str) -> Callable[[Evidence], Credit]:
    """The target less what it is a target of: how much better than expected the step turned out."""

    def give(evidence: Evidence) -> Credit:
        shard, values = evidence.shard, evidence.known
        options: dict[str, Any] = {"n": evidence.n, "lam": evidence.lam}
        notes: tuple[str, ...] = ()
        if kind == "retrace":
            options |= {"taken": values.taken, "ratios": values.ratios}
            if missing := int(np.isnan(values.ratios).sum()):
                notes = (
                    f"{missing:,} of {shard.size:,} steps have no propensity: the trace of retrace is cut there",
                )
            if guessed := int((shard.propensity_kinds == _ESTIMATED).sum()):
                notes += (f"{guessed:,} of {shard.size:,} propensities that retrace weighs by are estimates",)
        targets = targets_of(shard, kind, values.states, **options)
        relative = targets if kind in ("td", "gae") else targets - values.states[shard.observation_rows]
        return Credit(relative, notes)

    return give


def _decomposition(evidence: Evidence) -> Credit:
    found: Decomposition = decompose(evidence.shard, evidence.train, same=evidence.shard.split == "train")
    share = f"{found.explained:.0%} of" if found.explained > 0 else "nothing of"
    weak = "" if found.explained > 0 else ": credit by decomposition is no better than an even share"
    told = f"prefixes explain {share} the returns of episodes left out of the fit{weak}"
    return Credit(found.credit, (told,))


def _shaped(evidence: Evidence) -> Credit:
    assert evidence.worked is not None, "results are read for the method that needs them"
    return Credit(evidence.shard.rewards.astype(np.float64) + BONUS * evidence.worked)


def _return(evidence: Evidence) -> Credit:
    shard = evidence.shard
    return Credit(
        returns_to_go(
            shard.rewards.astype(np.float64), np.asarray(shard.episode_offsets), _discounts(evidence)
        )
    )


def _discounts(evidence: Evidence) -> Floats:
    return (
        np.full(evidence.shard.size, evidence.shard.manifest.gamma)
        if evidence.discounts is None
        else evidence.discounts
    )


def _shares(weigh: Callable[[Evidence], Floats]) -> Callable[[Evidence], Credit]:
    """Each episode's sum of rewards, shared out by weights."""

    def give(evidence: Evidence) -> Credit:
        shard, shares = evidence.shard, weigh(evidence)
        owner, count = shard.episode_index, shard.episode_count
        totals = np.bincount(owner, shard.rewards.astype(np.float64), count)
        weights = np.bincount(owner, shares, count)
        return Credit(np.asarray(totals[owner] * shares / weights[owner]))

    return give


def _evenly(evidence: Evidence) -> Floats:
    return np.ones(evidence.shard.size)


def _at_last(evidence: Evidence) -> Floats:
    last = np.zeros(evidence.shard.size)
    last[np.asarray(evidence.shard.episode_offsets)[1:] - 1] = 1.0
    return last


def _from_the_end(evidence: Evidence) -> Floats:
    """What 1 paid at the end is worth at each step."""
    offsets = np.asarray(evidence.shard.episode_offsets)
    return returns_to_go(_at_last(evidence), offsets, _discounts(evidence))


_LESS = "the target less V(s)"
METHODS: Final[Mapping[str, Method]] = {
    method.name: method
    for method in (
        Method(
            "counterfactual",
            "Q(s, a) − Σ_b π(b\\|s) Q(s, b): how much better than the policy's own draw (Foerster et al. 2018)",
            _counterfactual,
            "values",
        ),
        Method("td", "the TD error r + γ V(s′) − V(s)", _target("td"), "values"),
        Method(
            "gae", "a γλ-sum of TD errors (Schulman et al. 2016)", _target("gae"), "values", options=("lam",)
        ),
        Method("n_step", _LESS, _target("n_step"), "values", options=("n",)),
        Method("td_lambda", _LESS, _target("td_lambda"), "values", options=("lam",)),
        Method("retrace", _LESS, _target("retrace"), "values", options=("lam",)),
        Method(
            "decomposition",
            "what it changed in the return predicted from the episode so far (after Arjona-Medina et al. 2019)",
            _decomposition,
            "train split",
            sums=True,
        ),
        Method("shaped", f"its reward, and {BONUS} more for a command that worked", _shaped, "results"),
        Method("return", "the return to go", _return, clock=True),
        Method("uniform", "an even share of the episode's rewards", _shares(_evenly), sums=True),
        Method(
            "discounted",
            "a share by γ to the distance from the end",
            _shares(_from_the_end),
            sums=True,
            clock=True,
        ),
        Method("last", "all of it, at the last step", _shares(_at_last), sums=True),
    )
}
"""Every method by its name, the default first."""
ALL: Final = "all"


def methods_named(name: str) -> tuple[Method, ...]:
    """The method of a name, or every one for `all`. Raises UnknownName."""
    if name == ALL:
        return tuple(METHODS.values())
    if name not in METHODS:
        raise UnknownName("method", name, [*METHODS, ALL])
    return (METHODS[name],)
