"""What importance sampling says of the policies on one split, beside FQE."""

from __future__ import annotations

import numpy as np

from logforge.core import Scope, intervals, per, stage, types
from logforge.evaluation.measuring import Measured
from logforge.evaluation.report import PolicyRow
from logforge.learning.ope import importance


@stage(per(Scope.POLICY, "importance sampling"))
def weighed(found: Measured, span: intervals.Span, seed: int) -> tuple[PolicyRow, ...]:
    """The rows with what importance sampling says of them."""
    held, rows = found.held, []
    for row in found.rows:
        if row.policy in found.choices:
            q, without_q = _q(found, row.policy)
            judged = importance(
                held,
                [np.eye(held.action_size, dtype=np.float32)[chosen] for chosen in found.choices[row.policy]],
                q,
                gamma=held.manifest.gamma,
                span=span,
                seed=seed,
                without_q=without_q,
            )
            row = row._replace(importance=judged)
        rows.append(row)
    return tuple(rows)


def _q(found: Measured, learner: str) -> tuple[types.FloatArray | None, str]:
    """Q for the doubly robust estimators, or why there is none.

    An episode that every bootstrap member drew has a Q of 0, which leaves what it was paid as it is: more noise and no bias, but
    for what follows a cut-off one, which Q alone tells of.
    """
    fit, held = found.fits.get(learner), found.held
    if fit is None or fit.out_of_bag is None:
        return None, found.reason
    cut = ~held.terminals[held.episode_offsets[1:] - 1]
    lacking = int((cut & (fit.out_of_bag.counts == 0)).sum())
    if lacking:
        told = f"no bootstrap member is without {lacking} of {int(cut.sum())} cut-off episodes, whose rest Q stands for"
        return None, f"{told}: give more --fqe-members"
    return fit.out_of_bag.q(held), ""
