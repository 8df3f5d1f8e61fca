"""How well the first state alone predicts success: far too well means that the future leaked into it.

What an agent knows before its first decision says something about the outcome (some tasks are harder than others), so an
AUC above 0.5 is no leak as such. One near 1 on tasks the model has never seen means that a state holds its own outcome: a
label in the task's text, a verdict in the system prompt, an outcome in the metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from logforge.core import MIN_EPISODES, Estimate, auc_estimates

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

FOLDS = 5
PENALTY = 0.1
"""scikit-learn's C on standardised features: strong, for there are often more features than episodes."""


def leak_auc(
    observations: NDArray[Any], success: NDArray[Any], groups: NDArray[Any], seed: int = 0
) -> Estimate:
    """The AUC of success, predicted from the first observation by a logistic regression, with its 95 % interval.

    `observations` [E, d] are those before the first decision, `success` [E] is 1, 0 or -1 (unknown: left out) and `groups`
    [E] the split groups: a group is never in the folds that predict it (5 folds, stratified). Scores are ranked within
    their fold, for pooled raw scores of no skill lie below 0.5: a fold with more successes leaves fewer to learn from.
    The value is None, with the reason, where there are too few groups or one outcome only.
    """
    known = np.flatnonzero(np.asarray(success) >= 0)
    won = np.asarray(success)[known].astype(bool)
    owners = np.unique(np.asarray(groups)[known], return_inverse=True)[1] if len(known) else known
    fewest = min((len(np.unique(owners[won == outcome])) for outcome in (True, False)), default=0)
    if fewest < MIN_EPISODES:
        reason = f"each outcome needs {MIN_EPISODES} independent episodes, one has {fewest}"
        return Estimate(None, reason=reason)
    scores = _held_out_scores(np.asarray(observations, np.float64)[known], won, owners, seed)
    (found, _), _ = auc_estimates(
        [scores, np.zeros_like(scores)], won, [str(owner) for owner in owners], seed
    )
    return found


def _held_out_scores(
    features: NDArray[np.float64], won: NDArray[np.bool_], groups: NDArray[Any], seed: int
) -> NDArray[np.float64]:
    """For each episode its rank, in (0, 1), within its fold by a model that saw none of the fold's groups."""
    from scipy.stats import rankdata
    from sklearn.model_selection import StratifiedGroupKFold
    from threadpoolctl import threadpool_limits

    scores = np.full(len(won), 0.5)
    folds = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=seed)
    with threadpool_limits(1):  # sums in one order on any machine
        for seen, held in folds.split(features, won, groups):
            if len(held) and 0 < won[seen].sum() < len(seen):
                margin = _model().fit(features[seen], won[seen]).decision_function(features[held])
                # margins that differ in the last bits are ties
                scores[held] = (rankdata(np.round(margin, 9)) - 0.5) / len(held)
    return scores


def _model() -> Pipeline:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(C=PENALTY, max_iter=1000))
