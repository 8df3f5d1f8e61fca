"""Return decomposition: the return predicted from every prefix of an episode, and what each step changed in the prediction.

After RUDDER (Arjona-Medina et al. 2019), with a ridge regression in the place of their LSTM: a prefix is described by the
observation it leads to and by how often each action was taken in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from logforge.core import need, one_thread
from logforge.rewards import Floats
from logforge.schemas import UsageError
from logforge.shards import SplitArrays

if TYPE_CHECKING:
    import torch

FOLDS: Final = 5
PENALTIES: Final = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Ridge penalties in units of a feature's variance; the one with the least error on held-out groups is taken."""
_ROWS: Final = 4096


@dataclass(frozen=True)
class Decomposition:
    """The credit of N steps, which sums to each episode's rewards, and how much of the returns the prefixes explain."""

    credit: Floats
    explained: float
    """R² of the predictions over all prefixes of the train split, by models that did not see their groups; at most 1."""


def decompose(held: SplitArrays, train: SplitArrays, *, same: bool) -> Decomposition:
    """The credit of the steps of `held`, by a regression fitted on the logged episodes of `train`.

    A step gets g(prefix with it) − g(prefix before it). What the prediction at the end lacks of the sum of rewards, and the
    prediction at the start, is shared evenly over the episode, so that the credit sums to the rewards. With `same`, `held`
    is the train split itself, and each episode is predicted by a model without its split group. Raises UsageError where
    there are too few groups to hold some out.
    """
    groups = len(np.unique(train.groups[~train.augmented]))
    if groups < FOLDS:
        raise UsageError(
            f"returns cannot be decomposed: {groups} independent train episodes (split groups), {FOLDS} are needed",
            "ingest more episodes and build again",
        )
    need("torch", "train")
    with one_thread():
        folds = np.unique(train.groups, return_inverse=True)[1] % FOLDS
        fit = _fitted(train, folds)
        model = folds if same else np.full(held.episode_count, FOLDS)
        guesses = _predicted(held, fit.models, model)
    return Decomposition(_differences(held, guesses), fit.explained)


def _differences(held: SplitArrays, guesses: Floats) -> Floats:
    before, owner = held.observation_rows, held.episode_index
    change = guesses[before + 1] - guesses[before]
    rest = _totals(held) - np.bincount(owner, change, held.episode_count)
    return np.asarray(change + (rest / np.diff(held.episode_offsets))[owner])


def _totals(held: SplitArrays) -> Floats:
    return np.asarray(
        np.bincount(held.episode_index, held.rewards.astype(np.float64), held.episode_count), np.float64
    )


class _Moments(NamedTuple):
    """Weighted sums over prefixes: features with features, features with the return, the return squared."""

    features: Floats
    cross: Floats
    square: float

    def without(self, other: _Moments) -> _Moments:
        return _Moments(self.features - other.features, self.cross - other.cross, self.square - other.square)

    def of(self, kept: npt.NDArray[np.intp]) -> _Moments:
        """The moments of some features."""
        return self._replace(features=self.features[np.ix_(kept, kept)], cross=self.cross[kept])

    @property
    def variance(self) -> Floats:
        """Of each feature; 0 where it is no more than rounding."""
        weight = self.features[0, 0]
        found = np.diag(self.features) / weight - (self.features[0] / weight) ** 2
        return np.where(found <= 1e-9, 0.0, found)

    def ridge(self, penalty: float) -> Floats:
        """Coefficients, the intercept first; each feature is penalised in units of its variance, the intercept not."""
        variance = self.variance
        scale = self.features[0, 0] * np.where(variance == 0, 1.0, penalty * variance)
        scale[0] = 0.0
        penalised = self.features.copy()
        penalised[np.diag_indices_from(penalised)] += scale
        return _solved(penalised, self.cross)

    def error(self, coefficients: Floats) -> float:
        """The squared error of these coefficients on the prefixes."""
        fitted = coefficients @ self.features @ coefficients
        return float(self.square - 2 * coefficients @ self.cross + fitted)


class _Fit(NamedTuple):
    models: Floats
    """Rows of coefficients: one model without each fold, and at last the one of all."""
    explained: float


def _fitted(train: SplitArrays, folds: npt.NDArray[Any]) -> _Fit:
    """A model of all folds and one without each, under the penalty that predicts held-out folds best."""
    parts = [_moments(train, (folds == fold) & ~train.augmented) for fold in range(FOLDS)]
    whole = _Moments(*(sum(part[1:], part[0]) for part in zip(*parts, strict=True)))
    size, others = len(whole.cross), [whole.without(part) for part in parts]
    told = _told([whole, *others])
    whole, *parts = (one.of(told) for one in (whole, *parts))
    others = [other.of(told) for other in others]
    models = [[other.ridge(penalty) for other in others] for penalty in PENALTIES]
    errors = [sum(part.error(model) for part, model in zip(parts, tried, strict=True)) for tried in models]
    best = int(np.argmin(errors))
    spread = whole.square - whole.cross[0] ** 2 / whole.features[0, 0]
    explained = float(1 - errors[best] / spread) if spread > 0 else 0.0
    chosen = np.zeros((FOLDS + 1, size))
    chosen[:, told] = [*models[best], whole.ridge(PENALTIES[best])]
    return _Fit(chosen, explained)


def _told(several: Sequence[_Moments]) -> npt.NDArray[np.intp]:
    """The intercept and the features that change anywhere: any other has the coefficient 0."""
    changes = np.any([moments.variance > 0 for moments in several], axis=0)
    changes[0] = True
    return np.flatnonzero(changes)


def _moments(data: SplitArrays, chosen: npt.NDArray[np.bool_]) -> _Moments:
    """The moments of all prefixes of the chosen episodes; every episode weighs the same."""
    import torch

    size = 1 + data.observation_size + data.action_size
    gram, cross = torch.zeros((size, size), dtype=torch.float64), torch.zeros(size, dtype=torch.float64)
    square, totals, lengths = 0.0, _totals(data), np.diff(data.observation_offsets)
    for _, owner, features in _prefixes(data):
        kept = chosen[owner]
        weights, returns = torch.from_numpy(1 / lengths[owner[kept]]), torch.from_numpy(totals[owner[kept]])
        inputs = features[torch.from_numpy(kept)]
        gram += (inputs * weights[:, None]).T @ inputs
        cross += inputs.T @ (weights * returns)
        square += float((weights * returns**2).sum())
    return _Moments(gram.numpy(), cross.numpy(), square)


def _predicted(data: SplitArrays, models: Floats, model: npt.NDArray[Any]) -> Floats:
    """The return predicted at each of the N + E observations; `model` is the number of each episode's model."""
    import torch

    guesses = np.empty(len(data.observations))
    for rows, owner, features in _prefixes(data):
        of_all = (features @ torch.from_numpy(models).T).numpy()
        guesses[rows] = of_all[np.arange(len(owner)), model[owner]]
    return guesses


def _prefixes(data: SplitArrays) -> Iterator[tuple[slice, npt.NDArray[Any], torch.Tensor]]:
    """Blocks of whole episodes: the rows of observations, their episodes, and what describes the prefixes that end there."""
    import torch

    offsets = np.asarray(data.observation_offsets)
    taken = np.full(len(data.observations), -1, np.int64)  # the action that led to each observation
    taken[data.observation_rows + 1] = data.actions
    first = 0
    while first < data.episode_count:
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + _ROWS, side="right")) - 1)
        rows = slice(int(offsets[first]), int(offsets[last]))
        owner = np.repeat(np.arange(first, last), np.diff(offsets[first : last + 1]))
        counts = np.cumsum(taken[rows, None] == np.arange(data.action_size), axis=0, dtype=np.float64)
        counts -= counts[offsets[owner] - rows.start]  # nothing leads to an episode's first observation
        ones = np.ones((len(owner), 1))
        observed = np.asarray(data.observations[rows], dtype=np.float64)
        yield rows, owner, torch.from_numpy(np.hstack([ones, observed, counts]))
        first = last


def _solved(left: Floats, right: Floats) -> npt.NDArray[np.float64]:
    """Of a symmetric, positive definite matrix: half the work of a general one."""
    import torch

    factor, failed = torch.linalg.cholesky_ex(torch.from_numpy(left))
    if failed:  # rounding made it indefinite
        found = torch.linalg.solve(torch.from_numpy(left), torch.from_numpy(right))
    else:
        found = torch.cholesky_solve(torch.from_numpy(right)[:, None], factor)[:, 0]
    return np.asarray(found.numpy(), np.float64)
