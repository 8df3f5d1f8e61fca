"""Stage `estimate`: the propensities that a log lacks, where they are asked for: the probability of each action under whoever took it, from the state.

A masked softmax regression on the state's vector, one for each policy that chose often enough. It is cross-fitted: a row of the train split is
judged by a model that saw nothing of its split group, other splits by the model of the whole train split. A temperature
and an even share, fitted on the held-out folds, calibrate them. Where this is no better than how often each action is taken, nothing is
written: a wrong propensity is worse than none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logforge.core import from_all, stage
from logforge.dataset.build.encoding import Encoded
from logforge.dataset.build.masked_softmax import PENALTIES, Calibration, Floats, Mask, MaskedSoftmax, softmax
from logforge.dataset.build.plan import Plan
from logforge.rewards.scorers import FOLDS
from logforge.schemas import PROPENSITY_KINDS, Vocabulary
from logforge.shards import SplitArrays

METHOD: Final = "masked softmax regression, cross-fitted, calibrated"
MOST: Final = 20_000
"""A model learns from so many rows at most, spread evenly over the split."""
CHOOSING: Final = 5_000
"""The same while its penalty is chosen."""
LEAST: Final = 50
"""With fewer decisions nothing is estimated, or told of a policy."""
SURE: Final = 2.0
"""The model must beat the frequencies by so many standard errors."""
STRATUM: Final = 200
"""A policy with fewer decisions than this has no model of its own."""
_ESTIMATED, _MISSING = PROPENSITY_KINDS.index("estimated"), PROPENSITY_KINDS.index("missing")
_CHUNK = 1 << 14


@dataclass(frozen=True)
class Quality:
    """How good the estimates are on rows that their model never saw: expected calibration error, and log loss against that
    of how often each action is taken among those allowed."""

    rows: int
    ece: float
    log_loss: float
    marginal_log_loss: float
    gain_error: float
    """Standard error of how much lower the model's log loss is."""


@dataclass(frozen=True)
class PropensityModel:
    """What was estimated, and how well; `refused` says why nothing was."""

    written: int
    asked: bool = True
    calibration: Mapping[str, Mapping[str, float]] | None = None
    train: Quality | None = None
    held_out: Quality | None = None
    policies: Mapping[str, Quality] | None = None
    refused: str = ""

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values, numbers to six digits; nothing where nobody asked for estimates."""
        told = {key: value for key, value in asdict(self).items() if key != "asked"}
        return {"method": METHOD, **_rounded(told)} if self.asked else {}

    @classmethod
    def none(cls) -> PropensityModel:
        """Nobody asked for estimates."""
        return cls(0, asked=False)


@dataclass(frozen=True, slots=True)
class Estimated:
    """Transitions and arrays with the propensities that could be estimated."""

    encoded: Encoded
    propensity: PropensityModel
    transitions: pl.DataFrame
    arrays: Mapping[str, SplitArrays]


@stage(
    from_all(
        "propensities, with `--estimate-propensity`",
        f"observations and masks of every row, in memory; a model learns from {MOST:,} rows at most, its calibration from all "
        "of train",
    )
)
def estimate(encoded: Encoded, plan: Plan) -> Estimated:
    """The propensities that the log lacks, where they are asked for."""
    if not plan.config.estimate_propensity:
        return Estimated(encoded, PropensityModel.none(), encoded.transitions, encoded.arrays)
    space = encoded.builder.space
    found = estimate_propensities(
        encoded.transitions, encoded.arrays, space.vocabulary, space.policies, plan.config.seed
    )
    return Estimated(encoded, found.model, found.rows, found.arrays)


class Estimates(NamedTuple):
    """Rows and arrays with the estimates in them, and what is to be said of these."""

    rows: pl.DataFrame
    arrays: dict[str, SplitArrays]
    model: PropensityModel


def estimate_propensities(
    rows: pl.DataFrame,
    arrays: Mapping[str, SplitArrays],
    vocabulary: Vocabulary,
    policies: tuple[str, ...],
    seed: int,
) -> Estimates:
    """Fill in the propensities that are missing, of kind `estimated`; those that the log has stay.

    `rows` are the transitions of all splits, ordered by episode and step as each split's arrays are. Augmented episodes are
    neither learnt from nor estimated: nobody chose in them.
    """
    from threadpoolctl import threadpool_limits

    if not any((part.propensity_kinds == _MISSING).any() for part in arrays.values()):
        return Estimates(rows, dict(arrays), PropensityModel(0, refused="the log has every propensity"))
    inputs = {split: _inputs(part) for split, part in arrays.items()}
    known = _usable(inputs["train"], vocabulary)
    inputs = {split: item.allowing(known) for split, item in inputs.items()}
    reason = _too_little(inputs["train"])
    if reason:
        return Estimates(rows, dict(arrays), PropensityModel(0, refused=reason))
    with threadpool_limits(1):
        chances, model = _fitted(inputs, seed, policies)
    if model.refused:
        return Estimates(rows, dict(arrays), model)
    filled = {split: _filled(part, inputs[split], chances[split]) for split, part in arrays.items()}
    count = sum(int((filled[s].propensity_kinds != arrays[s].propensity_kinds).sum()) for s in arrays)
    return Estimates(_told(rows, filled), filled, replace(model, written=count))


@dataclass(frozen=True, eq=False)
class _Inputs:
    """The transitions of a split as the model sees them; `own` are those of logged episodes."""

    rows: NDArray[np.float32]
    actions: NDArray[Any]
    allowed: Mask
    groups: NDArray[Any]
    policies: NDArray[Any]
    own: Mask

    def allowing(self, known: NDArray[Any]) -> _Inputs:
        """The same with the actions `known` allowed everywhere, and each taken one in its row."""
        allowed = self.allowed.copy()
        allowed[:, known] = True
        allowed[np.arange(len(self.actions)), self.actions] = True
        return replace(self, allowed=allowed)


def _inputs(part: SplitArrays) -> _Inputs:
    here = part.observation_rows
    return _Inputs(
        rows=np.asarray(part.observations[here], np.float32),
        actions=np.asarray(part.actions),
        allowed=np.asarray(part.masks[here], np.bool_),
        groups=part.groups[part.episode_index],
        policies=np.asarray(part.behaviour_policies),
        own=~part.augmented[part.episode_index],
    )


def _usable(train: _Inputs, vocabulary: Vocabulary) -> NDArray[Any]:
    """Of what no mask allows, `<invalid>` and `<other>`, those that happen: they have a probability everywhere."""
    return np.intersect1d(vocabulary.unplayable, train.actions[train.own])


def _too_little(train: _Inputs, rows: Mask | None = None, least: int = LEAST) -> str:
    chosen = train.own if rows is None else train.own & rows
    groups, count = len(np.unique(train.groups[chosen])), int(chosen.sum())
    if groups >= 2 * FOLDS and count >= least:
        return ""
    return (
        f"the train split has {count} decisions in {groups} split groups; {least} in {2 * FOLDS} are needed"
    )


def _fitted(
    inputs: Mapping[str, _Inputs], seed: int, policies: tuple[str, ...]
) -> tuple[dict[str, Floats], PropensityModel]:
    """The probabilities of every action in every row of each split, and how good they are."""
    train = inputs["train"]
    fold, calibrations = _folds(train.groups, seed), dict[str, Calibration]()
    chances = {split: np.zeros(part.allowed.shape) for split, part in inputs.items()}
    marginal = {split: np.zeros(part.allowed.shape) for split, part in inputs.items()}
    for name, (learnt, told) in _strata(train, inputs, policies).items():
        fit = _Fit(train, learnt, fold)
        calibrations[name] = fit.calibration
        for split, rows in told.items():
            part = inputs[split]
            scores, plain = fit.cross_fitted(rows) if split == "train" else fit.scores(part.rows[rows])
            chances[split][rows] = fit.calibration.chances(scores, part.allowed[rows])
            marginal[split][rows] = softmax(plain, part.allowed[rows])
    quality = {name: _quality(inputs, chances, marginal, splits) for name, splits in _PARTS.items()}
    model = PropensityModel(
        written=0,
        calibration={name: found._asdict() for name, found in calibrations.items()},
        train=quality["train"],
        held_out=quality["held_out"],
        policies=_by_policy(train, chances, marginal, policies),
    )
    return chances, replace(model, refused=_no_better(model))


def _strata(
    train: _Inputs, inputs: Mapping[str, _Inputs], policies: tuple[str, ...]
) -> dict[str, tuple[Mask, dict[str, Mask]]]:
    """What is learnt apart: which rows of the train split each model learns from, and which of each split it tells of. Each
    policy with enough decisions is one, and what is left goes by a model of all rows."""
    own = {
        name: place
        for place, name in enumerate(policies)
        if len(policies) > 1 and not _too_little(train, train.policies == place, STRATUM)
    }
    found = {
        name: (
            train.own & (train.policies == place),
            {s: part.policies == place for s, part in inputs.items()},
        )
        for name, place in own.items()
    }
    rest = {split: ~np.isin(part.policies, list(own.values())) for split, part in inputs.items()}
    return found | ({"": (train.own, rest)} if any(rows.any() for rows in rest.values()) else {})


class _Fit:
    """The models of one stratum: one for each fold, which saw nothing of it, and one of all its rows."""

    def __init__(self, train: _Inputs, learnt: Mask, fold: NDArray[Any]) -> None:
        self._train, self._learnt, self._fold = train, learnt, fold
        self.penalty = self._chosen_penalty()
        self._models = [self._model(learnt & (fold != number), self.penalty) for number in range(FOLDS)]
        self._whole = self._model(learnt, self.penalty)
        scores, _ = self.cross_fitted(learnt)
        self.calibration = Calibration.fit(scores, train.actions[learnt], train.allowed[learnt])

    def cross_fitted(self, rows: Mask) -> tuple[Floats, Floats]:
        """Scores of rows of the train split, each by the model of its fold, and those of the marginal beside them."""
        shape = self._train.allowed.shape
        scores, plain = np.zeros(shape), np.zeros(shape)
        for number, model in enumerate(self._models):
            held = rows & (self._fold == number)
            scores[held] = model.scores(self._train.rows[held])
            plain[held] = self._marginal(self._learnt & (self._fold != number))
        return scores[rows], plain[rows]

    def scores(self, rows: NDArray[np.float32]) -> tuple[Floats, Floats]:
        """Scores of rows of another split, and those of the marginal."""
        plain = self._marginal(self._learnt)
        return self._whole.scores(rows), np.broadcast_to(plain, (len(rows), len(plain)))

    def _chosen_penalty(self) -> float:
        """The one with the least log loss on the first fold."""
        train, learnt = self._train, self._learnt & (self._fold != 0)
        held = self._learnt & (self._fold == 0)
        losses = {}
        for penalty in PENALTIES:
            model = self._model(learnt, penalty, CHOOSING)
            scores, actions, allowed = (
                model.scores(train.rows[held]),
                train.actions[held],
                train.allowed[held],
            )
            chances = Calibration.fit(scores, actions, allowed).chances(scores, allowed)
            losses[penalty] = log_loss(chances, actions)
        return min(PENALTIES, key=lambda penalty: (losses[penalty], -penalty))

    def _model(self, learnt: Mask, penalty: float, most: int = MOST) -> MaskedSoftmax:
        places = np.flatnonzero(learnt)
        if len(places) > most:
            places = places[np.linspace(0, len(places) - 1, most).astype(np.int64)]
        train = self._train
        return MaskedSoftmax.fit(train.rows[places], train.actions[places], train.allowed[places], penalty)

    def _marginal(self, learnt: Mask) -> Floats:
        """How often each action is taken, as scores: logarithms of the counts, each one up."""
        counts = np.bincount(self._train.actions[learnt], minlength=self._train.allowed.shape[1])
        found: Floats = np.log(counts + 1.0)
        return found


def _folds(groups: NDArray[Any], seed: int) -> NDArray[np.int64]:
    """The fold of each row: whole split groups, dealt out in an order set by the seed."""
    names, place = np.unique(groups, return_inverse=True)
    found: NDArray[np.int64] = np.random.default_rng(seed).permutation(len(names))[place] % FOLDS
    return found


_PARTS: Final = {"train": ("train",), "held_out": ("validation", "test")}


def _quality(
    inputs: Mapping[str, _Inputs],
    chances: Mapping[str, Floats],
    marginal: Mapping[str, Floats],
    splits: tuple[str, ...],
) -> Quality | None:
    chosen = [split for split in splits if split in inputs and inputs[split].own.any()]
    if not chosen:
        return None
    own = [inputs[split].own for split in chosen]

    def joined(parts: Mapping[str, Any]) -> Any:
        return np.concatenate([parts[split][rows] for split, rows in zip(chosen, own, strict=True)])

    allowed = joined({split: item.allowed for split, item in inputs.items()})
    actions = joined({split: item.actions for split, item in inputs.items()})
    return _measured(joined(chances), softmax(joined(marginal), allowed), actions)


def _measured(chances: Floats, plain: Floats, actions: NDArray[Any]) -> Quality:
    taken = np.arange(len(actions)), actions
    gain = np.log(np.maximum(chances[taken], 1e-300)) - np.log(np.maximum(plain[taken], 1e-300))
    return Quality(
        rows=len(actions),
        ece=calibration_error(chances, actions),
        log_loss=log_loss(chances, actions),
        marginal_log_loss=log_loss(plain, actions),
        gain_error=float(gain.std() / np.sqrt(len(gain))),
    )


def _by_policy(
    train: _Inputs, chances: Mapping[str, Floats], marginal: Mapping[str, Floats], policies: tuple[str, ...]
) -> dict[str, Quality] | None:
    """The train split's quality for each of several policies that took enough decisions to tell."""
    if len(policies) < 2:
        return None
    found = {}
    for place, name in enumerate(policies):
        rows = train.own & (train.policies == place)
        if rows.sum() >= LEAST:
            plain = softmax(marginal["train"][rows], train.allowed[rows])
            found[name] = _measured(chances["train"][rows], plain, train.actions[rows])
    return found


def _no_better(model: PropensityModel) -> str:
    for name, part in (("train", model.train), ("held-out", model.held_out)):
        if part is not None and part.marginal_log_loss - part.log_loss <= SURE * part.gain_error:
            return (
                f"on the {name} rows the model (log loss {part.log_loss:.3f}) is no better than how often each action is "
                f"taken ({part.marginal_log_loss:.3f})"
            )
    return ""


def _filled(part: SplitArrays, inputs: _Inputs, chances: Floats) -> SplitArrays:
    """The arrays with estimates in the place of what is missing."""
    lacking = (part.propensity_kinds == _MISSING) & inputs.own
    taken = chances[np.arange(len(inputs.actions)), inputs.actions]
    tiny = np.finfo(np.float32).tiny
    # Rounded once to float32, so that arrays and rows hold the same number.
    found = np.clip(taken.astype(np.float32), tiny, 1.0)
    return replace(
        part,
        propensities=np.where(lacking, found, part.propensities).astype(np.float32),
        propensity_kinds=np.where(lacking, _ESTIMATED, part.propensity_kinds).astype(np.int8),
    )


def _told(rows: pl.DataFrame, filled: Mapping[str, SplitArrays]) -> pl.DataFrame:
    """The rows with what the arrays hold."""
    chance, kind = rows["propensity"].to_numpy().copy(), rows["propensity_kind"].to_numpy().copy()
    for split, part in filled.items():
        places = (rows["split"] == split).to_numpy().nonzero()[0]
        new = part.propensity_kinds == _ESTIMATED
        chance[places[new]], kind[places[new]] = part.propensities[new].astype(np.float64), "estimated"
    return rows.with_columns(
        propensity=pl.Series(chance, dtype=pl.Float64, nan_to_null=True),
        propensity_kind=pl.Series(kind, dtype=pl.String),
    )


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return round(value, 6) if isinstance(value, float) else value


BINS: Final = 15


def calibration_error(chances: NDArray[np.float64], actions: NDArray[Any], bins: int = BINS) -> float:
    """Expected calibration error (Guo et al. 2017): rows [N, A] fall into `bins` of equal width by the probability of their
    likeliest action; the mean gap between that probability and how often it was taken, weighted by the bins' sizes."""
    likeliest = chances.argmax(axis=1)
    confidence = chances[np.arange(len(chances)), likeliest]
    right = (likeliest == actions).astype(np.float64)
    place = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    gaps = np.bincount(place, right - confidence, bins)
    return float(np.abs(gaps).sum() / max(1, len(chances)))


def log_loss(chances: NDArray[np.float64], actions: NDArray[Any]) -> float:
    """Mean negative logarithm of the probabilities [N, A] of what was taken."""
    taken = np.maximum(chances[np.arange(len(actions)), actions], np.finfo(np.float64).tiny)
    return float(-np.log(taken).mean()) if len(actions) else 0.0
