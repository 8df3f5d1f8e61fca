"""The credit that a store keeps of a split, where it is clear whose it is."""

from __future__ import annotations

from typing import NamedTuple

from logforge.exports.job import Job
from logforge.schemas import UnknownName, UsageError

_KINDS = """
SELECT DISTINCT method, policy, settings FROM credit WHERE dataset = $1 AND split = $2 AND hash = $3 ORDER BY ALL
"""


class KeptCredit(NamedTuple):
    """What gave credit: a method, the policy whose values it was reckoned with (None: the method needs none), its options."""

    method: str
    policy: str | None
    settings: str
    """JSON text, as in the table `credit`."""


def kept_credit(job: Job, method: str, option: str, others: tuple[str, ...] = ()) -> KeptCredit:
    """The one credit by `method` of this build's split. `option` asked for it and also takes `others`, which need no credit.

    Raises UsageError where the store keeps none, and where it keeps several: of several, no one can say which is meant. Raises
    UnknownName where it keeps other methods' alone.
    """
    split = job.shard.split
    kept = [
        KeptCredit(*row)
        for row in job.store.con.execute(_KINDS, [job.manifest.dataset, split, job.manifest.hash]).fetchall()
    ]
    methods = sorted({one.method for one in kept})
    if method not in methods:
        if not methods:
            instead = "".join(f"; or {option} {other}" for other in others)
            remedy = f"make it: logforge credit RUN --split {split} --method {method}{instead}"
            raise UsageError(f"the store keeps no credit of {split} of this build", remedy)
        raise UnknownName(option, method, [*others, *methods])
    found = [one for one in kept if one.method == method]
    if len(found) > 1:
        told = "; ".join(f"policy {one.policy}, {one.settings}" for one in found)
        remedy = "delete those you do not mean from the table `credit`, or build and credit again"
        raise UsageError(f"the store keeps {len(found)} credits by {method}: {told}", remedy)
    return found[0]
