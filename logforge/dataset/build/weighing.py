"""Stage `weigh_rows`: the sample weights, as products of their parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from logforge.core import from_all, from_summary, per_bucket, per_episode, stage
from logforge.dataset.build.conflict_treatment import Treated
from logforge.dataset.build.encoding import Encoded
from logforge.dataset.build.plan import Plan
from logforge.dataset.build.propensity import PropensityModel
from logforge.dataset.build.splitting import Cohort
from logforge.dataset.weights import weigh, weight_parts
from logforge.shards import SplitArrays


@dataclass(frozen=True, slots=True)
class Weighed:
    """Transitions and arrays with their weights: all of a dataset but what is told of it."""

    encoded: Encoded
    propensity: PropensityModel
    conflicts: pl.DataFrame
    cohort: Cohort
    transitions: pl.DataFrame
    arrays: Mapping[str, SplitArrays]


@stage(
    from_all(
        "calls without news, where they weigh otherwise",
        "every stored step, in the store's engine: a row a step",
    ),
    from_summary("the newest episode, where age counts", "when each train episode began"),
    from_summary(
        "which words are common in a format", "hashes and counts: 16 bytes a distinct word of train"
    ),
    per_bucket("how far a train step strays from its task"),
    from_summary(
        "which strays weigh less",
        "how like its task each step is: 8 bytes a train step",
    ),
    per_episode("products of parts, a copy with what it was made from"),
)
def weigh_rows(treated: Treated, plan: Plan) -> Weighed:
    """Weigh the train split's rows; all others weigh 1."""
    parts = weight_parts(
        plan.store.con,
        treated.transitions,
        treated.cohort.logged_train(),
        treated.factors,
        plan.spec.detectors,
        plan.encoder,
        plan.config.weights,
        plan.progress,
    )
    transitions, arrays = weigh(treated.transitions, treated.arrays, parts)
    told = treated.encoded, treated.propensity, treated.conflicts, treated.cohort
    return Weighed(*told, transitions, arrays)
