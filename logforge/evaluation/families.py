"""How what was learnt holds on a task family that nothing was learnt from: each policy in distribution, and out of it.

`iid` are held-out episodes of the tasks that the log is full of, `ood_family` those of the split `held_out` (build-dataset
--hold-out). A policy loses its value on the one less that on the other. The other family may be harder or easier for anyone, so a
loss alone says little: what is judged is the difference of two policies' losses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from logforge.core import Estimate, bracketed, intervals, picked, plain, table
from logforge.learning.ope import Fitted


class Side(NamedTuple):
    """What is known of the policies on one split: its name and size, values and action matches by policy, the fits behind the
    values (none where nothing can be fitted), and why there are none."""

    split: str
    episodes: int
    values: Mapping[str, Estimate]
    matches: Mapping[str, Estimate]
    fits: Mapping[str, Fitted]
    reason: str = ""


class FamilyRow(NamedTuple):
    """One policy on both sides. `loss` is its value on `iid` less that on `ood_family`."""

    policy: str
    iid: Estimate
    ood_family: Estimate
    loss: Estimate
    iid_match: Estimate
    ood_family_match: Estimate

    def as_dict(self) -> dict[str, Any]:
        """The row as JSON data."""
        return {
            "policy": self.policy,
            "iid": {"value": plain(self.iid), "action_match": plain(self.iid_match)},
            "ood_family": {"value": plain(self.ood_family), "action_match": plain(self.ood_family_match)},
            "loss": plain(self.loss),
        }

    def cells(self) -> list[str]:
        """The row as text."""
        values = (bracketed(part, "{:.2f}") for part in self[1:4])
        matches = ("—" if part.value is None else f"{part.value:.0%}" for part in self[4:])
        return [self.policy, *values, *matches]


class Generalisation(NamedTuple):
    """The policies on both sides. `better` says whether the learner loses less than cloning does (None: that cannot be told
    or was not asked), `difference` by how much."""

    iid: Side
    ood_family: Side
    rows: tuple[FamilyRow, ...]
    text: str
    better: bool | None = None
    difference: Estimate = Estimate(None)

    def as_dict(self) -> dict[str, Any]:
        """The comparison as JSON data."""
        sides = {name: picked(getattr(self, name), "split", "episodes") for name in ("iid", "ood_family")}
        return {
            **sides,
            "policies": plain(self.rows),
            "verdict": picked(self, "better", "text", "difference"),
        }

    def lines(self) -> Iterator[str]:
        """The comparison as text, the verdict last."""
        header = ("policy", "iid", "ood_family", "loss", "iid match", "ood match")
        yield (
            f"iid: {self.iid.episodes} episodes of {self.iid.split}; "
            f"ood_family: {self.ood_family.episodes} of {self.ood_family.split}, which nothing was learnt from (95 %)"
        )
        yield table(header, [row.cells() for row in self.rows])
        for name, side in (("iid", self.iid), ("ood_family", self.ood_family)):
            if side.reason:
                yield f"— values of {name}: {side.reason}"
        yield f"generalisation: {self.text}"


def compare(iid: Side, ood_family: Side, learner: str, clone: str) -> Generalisation:
    """The policies of both sides, and whether `learner` loses less than `clone` does.

    The fits of one side must be paired (one seed), those of the two sides must not: they are of different episodes.
    """
    rows = tuple(_row(name, iid, ood_family) for name in iid.values)
    if learner == clone or learner not in iid.values or clone not in iid.values:
        told = "; ".join(_loses(row) for row in rows if row.loss.value is not None)
        return Generalisation(iid, ood_family, rows, told or "there is nothing to compare")
    if why := _unknown(iid, ood_family, (learner, clone)):
        return Generalisation(iid, ood_family, rows, f"{learner} cannot be compared with {clone}: {why}")
    sides = (side.fits[clone].values - side.fits[learner].values for side in (iid, ood_family))
    in_it, out_of_it = sides
    difference = intervals.interval(in_it - out_of_it)
    by_policy = {row.policy: row for row in rows}
    told = f"{_loses(by_policy[clone])}, {_loses(by_policy[learner])}; {clone} loses {bracketed(difference, '{:+.2f}')} more"
    better, verdict = _judged(difference, learner, clone)
    return Generalisation(iid, ood_family, rows, f"{told}: {verdict}", better, difference)


def _judged(difference: Estimate, learner: str, clone: str) -> tuple[bool, str]:
    if difference.low is not None and difference.low > 0:
        return True, f"{learner} generalises better"
    if difference.high is not None and difference.high < 0:
        return False, f"{clone} generalises better"
    return False, "the losses cannot be told apart"


def _unknown(iid: Side, ood_family: Side, names: tuple[str, str]) -> str:
    for side in (iid, ood_family):
        reasons = [side.reason] if side.reason else [side.fits[name].unsettled for name in names]
        if why := "; ".join(sorted({reason for reason in reasons if reason})):
            return f"{side.split}: {why}"
    return ""


def _row(name: str, iid: Side, ood_family: Side) -> FamilyRow:
    loss = Estimate(None, reason="a value is missing")
    settled = all(name in side.fits and not side.fits[name].unsettled for side in (iid, ood_family))
    if settled:
        loss = intervals.interval(iid.fits[name].values - ood_family.fits[name].values)
    return FamilyRow(
        name, iid.values[name], ood_family.values[name], loss, iid.matches[name], ood_family.matches[name]
    )


def _loses(row: FamilyRow) -> str:
    return f"{row.policy} loses {bracketed(row.loss, '{:+.2f}')}"
