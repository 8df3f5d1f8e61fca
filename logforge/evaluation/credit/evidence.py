"""How far each step's credit can be relied on: whether the fitted values agree on it, and whether the log knows the action.

`spread` is the standard deviation of a method's credit over the members of the fit of values (each on its own resample of whole
episodes, from its own start): large where the data decide little. Methods without values have none. `support` is in how many of
the nearest train decisions (logforge/learning/ope/support.py) the same action was taken; the step's own split group is left out of the train split. With 0
nothing that was logged speaks for the credit: it is what a network makes of other states and other actions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from logforge.evaluation.credit.methods import Evidence, Method
from logforge.learning.ope import similar_actions
from logforge.rewards import Floats
from logforge.shards import Shard


def spread_of(method: Method, evidence: Evidence) -> Floats:
    """The spread of a method's credit of N steps; NaN where it has no values, or values of fewer than two members."""
    values = evidence.values
    alone = [] if values is None or method.needs != "values" else list(values.each())
    if len(alone) < 2:
        return np.full(evidence.shard.size, np.nan)
    amounts = np.array([method.give(replace(evidence, values=one)).amounts for one in alone])
    apart: Floats = (amounts - amounts[0]).std(axis=0, ddof=1)  # equal members differ by exactly 0
    return apart


def support_of(shard: Shard, train: Shard) -> NDArray[np.int64]:
    """In how many of the nearest train decisions the log took the step's action [N]."""
    return similar_actions(train, shard, same=shard.split == "train").counts(shard.actions)
