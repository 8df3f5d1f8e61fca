"""How well the observations of decisions predict what comes out, beyond what the step number predicts.

Returns (R²) and success (AUC) are predicted by cross-validation over split groups from the observation, and from two
baselines: the step number alone, and the observations shuffled among decisions of the same step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.core import MIN_EPISODES, Estimate, auc_estimates, resamples
from logforge.shards import Sample

FOLDS, ROWS, RESAMPLES = 5, 3000, 500
USEFUL = 0.1
"""A gain in R² or AUC below this is none that matters."""
ENOUGH = 50
"""From fewer independent groups nothing is said against a state."""
TREES = 40
F64 = NDArray[np.float64]


class Probe(NamedTuple):
    """How well a target is predicted: from the state, from the step number, from shuffled states; and what the state adds
    to the better of the two baselines."""

    target: str
    groups: int
    state: Estimate
    time: Estimate
    shuffled: Estimate
    gain: Estimate

    @property
    def verdict(self) -> Literal["sufficient", "insufficient", "undecided"]:
        """Whether the state says more than the baselines; `insufficient` only where a gain of USEFUL can be ruled out."""
        if self.gain.low is None or self.gain.high is None:
            return "undecided"
        if self.gain.low > 0:
            return "sufficient"
        return "insufficient" if self.gain.high < USEFUL and self.groups >= ENOUGH else "undecided"


class Predicted(NamedTuple):
    """What models said of rows they had not seen [n], the mean they had learnt from [n], and the fold [n]."""

    values: F64
    means: F64
    folds: NDArray[Any]


def probes(sample: Sample, seed: int = 0) -> tuple[Probe, Probe]:
    """The probe of returns (R², of episodes that were not cut off) and that of success (AUC, of known outcomes)."""
    whole = ~sample.truncated[sample.episode]
    known = sample.success[sample.episode] >= 0
    returns = _probe("return, R²", sample, whole, sample.returns, seed, _r2)
    success = _probe("success, AUC", sample, known, sample.success[sample.episode].astype(float), seed, _auc)
    return returns, success


def _probe(
    target: str,
    sample: Sample,
    chosen: NDArray[np.bool_],
    values: F64,
    seed: int,
    judge: Callable[..., list[Estimate]],
) -> Probe:
    rows = _thinned(np.flatnonzero(chosen), seed)
    groups = sample.groups[sample.episode[rows]]
    independent = len(np.unique(groups))
    wanted = values[rows]
    if independent < MIN_EPISODES or len(rows) < 2 * FOLDS or np.ptp(wanted) == 0:
        reason = (
            f"only {independent} independent episodes, {MIN_EPISODES} are needed"
            if independent < MIN_EPISODES
            else "all values are the same"
        )
        none = Estimate(None, reason=reason)
        return Probe(target, independent, none, none, none, none)
    states = sample.observations[rows].astype(np.float64)
    steps = sample.steps[rows, None].astype(np.float64)
    features = [states, np.hstack([steps, steps**2, np.log1p(steps)]), _shuffled(states, steps[:, 0], seed)]
    predicted = [_held_out(item, wanted, groups, seed) for item in features]
    return Probe(target, independent, *judge(predicted, wanted, groups, seed))


def _thinned(rows: NDArray[Any], seed: int) -> NDArray[Any]:
    if len(rows) <= ROWS:
        return rows
    return np.sort(np.random.default_rng([seed, 11]).choice(rows, ROWS, replace=False))


def _shuffled(states: F64, steps: F64, seed: int) -> F64:
    """Observations of other decisions with the same step number: all that time says stays, all that is known of the case goes."""
    generator = np.random.default_rng([seed, 13])
    mixed = states.copy()
    for step in np.unique(steps):
        rows = np.flatnonzero(steps == step)
        mixed[rows] = states[generator.permutation(rows)]
    return mixed


def _held_out(features: F64, wanted: F64, groups: NDArray[Any], seed: int) -> Predicted:
    """Predictions for each row by models that saw nothing of its group: the mean of a ridge regression and a forest."""
    from sklearn.ensemble import ExtraTreesRegressor
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import GroupKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits

    found = Predicted(np.zeros(len(wanted)), np.zeros(len(wanted)), np.zeros(len(wanted), np.int64))
    folds = GroupKFold(min(FOLDS, len(np.unique(groups))), shuffle=True, random_state=seed)
    with threadpool_limits(1):  # sums in one order on any machine
        for number, (seen, held) in enumerate(folds.split(features, wanted, groups)):
            ridge = make_pipeline(StandardScaler(), Ridge(float(features.shape[1])))
            trees = ExtraTreesRegressor(TREES, min_samples_leaf=4, max_features="sqrt", random_state=seed)
            models = [model.fit(features[seen], wanted[seen]) for model in (ridge, trees)]
            found.values[held] = np.mean([model.predict(features[held]) for model in models], axis=0)
            found.means[held], found.folds[held] = wanted[seen].mean(), number
    return found


def _r2(predicted: list[Predicted], wanted: F64, groups: NDArray[Any], seed: int) -> list[Estimate]:
    """The share of the squared error, of guessing the mean of the other folds, that each prediction saves; and the gain."""
    owners = np.unique(groups, return_inverse=True)[1]
    counts = resamples(np.arange(owners.max() + 1), RESAMPLES, seed)
    errors = [np.bincount(owners, (wanted - item.values) ** 2) for item in predicted]
    guess = np.bincount(owners, (wanted - predicted[0].means) ** 2)
    point = [1 - float(error.sum() / guess.sum()) for error in errors]
    drawn = [1 - (counts @ error) / (counts @ guess) for error in errors]
    baseline = 1 + int(point[2] > point[1])
    gain = _between(point[0] - point[baseline], drawn[0] - drawn[baseline])
    return [*(_between(value, sample) for value, sample in zip(point, drawn, strict=True)), gain]


def _auc(predicted: list[Predicted], wanted: F64, groups: NDArray[Any], seed: int) -> list[Estimate]:
    """AUCs of ranks within folds: pooled raw scores of no skill lie below 0.5, for a fold with more successes leaves fewer."""
    names, won = [str(group) for group in groups], wanted > 0
    ranks = [_ranks(item) for item in predicted]
    found, _ = auc_estimates(ranks, won, names, seed)
    baseline = 1 + int((found[2].value or 0.0) > (found[1].value or 0.0))
    _, gain = auc_estimates([ranks[0], ranks[baseline]], won, names, seed)
    return [*found, gain]


def _ranks(predicted: Predicted) -> F64:
    from scipy.stats import rankdata

    ranks = np.zeros(len(predicted.values))
    for fold in np.unique(predicted.folds):
        rows = predicted.folds == fold
        ranks[rows] = (rankdata(np.round(predicted.values[rows], 9)) - 0.5) / rows.sum()
    return ranks


def _between(point: float, drawn: F64) -> Estimate:
    low, high = np.nanpercentile(drawn, [2.5, 97.5])
    return Estimate(float(point), float(low), float(high))
