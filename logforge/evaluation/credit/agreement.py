"""Whether credit falls on the steps that people hold to be decisive, and whether people agree among themselves.

Credit consistency is Spearman's rank correlation of a method's credit with the annotators' mean score over the steps of an
episode, averaged over episodes, with an interval from a bootstrap over them (whole split groups). An episode all of whose
steps are scored alike ranks nothing and is left out; a method that credits all steps of an episode alike has 0 there.

Agreement is Krippendorff's α for interval data (Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability"): it takes any
number of annotators, scores as well as yes and no, and steps that not everybody judged. 1 is perfect, 0 is chance; conclusions
want 0.8, tentative ones 0.667.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from logforge.core import BaseReport, Estimate, Lines, bootstrap_mean, noted, table
from logforge.evaluation.credit.key_steps import read_key_steps, scored
from logforge.evaluation.credit.pipeline import CreditReport, credit_of
from logforge.learning.policies import read_run, run_data
from logforge.rewards import Floats
from logforge.schemas import UsageError
from logforge.store import Store

TENTATIVE: Final = 0.667
"""Below this α, Krippendorff draws no conclusion."""


def spearman(a: Sequence[float] | Floats, b: Sequence[float] | Floats) -> float:
    """Spearman's ρ of two sequences of one length: Pearson's correlation of their ranks, ties sharing the mean rank. NaN where
    one of them is constant. Raises UsageError for lengths that differ."""
    from scipy.stats import rankdata

    if len(a) != len(b):
        raise UsageError(f"{len(a)} numbers cannot be ranked against {len(b)}", "give two of one length")
    if not len(a):
        return float("nan")
    ranks = np.stack([rankdata(a), rankdata(b)])
    ranks -= ranks.mean(axis=1, keepdims=True)
    spread = float(np.sqrt((ranks[0] @ ranks[0]) * (ranks[1] @ ranks[1])))
    return float(ranks[0] @ ranks[1]) / spread if spread else float("nan")


def krippendorff_alpha(units: Iterable[Floats]) -> float:
    """α for interval data: `units` holds what each thing was given, NaN where an annotator gave nothing.

    Things that one annotator alone judged say nothing. NaN where nothing was judged twice, or nobody ever differed in
    anything from anything. For yes and no it is the nominal α.
    """
    pairable = [given for unit in units if len(given := unit[~np.isnan(unit)]) > 1]
    if not pairable:
        return float("nan")
    every = np.concatenate(pairable)
    observed = sum(_squares(given) / (len(given) - 1) for given in pairable) / len(every)
    expected = _squares(every) / (len(every) * (len(every) - 1))
    return 1.0 - observed / expected if expected else float("nan")


def _squares(given: Floats) -> float:
    """The squared differences of all ordered pairs."""
    centred = given - given.mean()
    return float(2 * len(given) * (centred @ centred))


def consistency(credit: Sequence[Floats], truth: Sequence[Floats]) -> Floats:
    """ρ of each episode; NaN where its truth is constant, 0 where its credit is and the truth is not."""
    found = np.array([spearman(given, told) for given, told in zip(credit, truth, strict=True)], np.float64)
    ranked = np.array([len(told) > 0 and float(np.ptp(told)) > 0 for told in truth], np.bool_)
    return np.where(ranked, np.nan_to_num(found), np.nan)


@dataclass(frozen=True)
class AgreementReport(BaseReport):
    """Each method's consistency with the annotators, and theirs among themselves (None: no step was judged twice)."""

    consistency: Mapping[str, Estimate]
    alpha: float | None
    annotators: tuple[str, ...]
    episodes: int
    """Judged, and ranked by the judgement: what consistency is the mean over."""
    unranked: int
    dataset: str
    split: str
    notes: tuple[str, ...]

    def lines(self) -> Lines:
        """A row for each method."""
        rows = [
            (name, *("" if x is None else f"{x:+.3f}" for x in found[:3]), found.reason)
            for name, found in self.consistency.items()
        ]
        agreed = "nothing was judged twice" if self.alpha is None else f"α = {self.alpha:.3f}"
        judged = f"{self.episodes} judged episodes, {len(self.annotators)} annotators ({agreed})"
        yield f"{self.dataset}, {self.split}: {judged}\n"
        yield table(("method", "ρ with key steps", "low", "high", "why not"), rows)
        yield "" if self.notes else None
        yield from noted(self.notes)


def credit_agreement(
    store: Store,
    run: str | Path,
    key_steps: str | Path,
    split: str = "test",
    method: str = "all",
    **options: Any,
) -> AgreementReport:
    """The consistency of one method of credit, or of all, with the key steps of a file. Keeps nothing in the store.

    `options` are those of `credit_of`. Raises what `read_key_steps`, `scored` and `credit_of` raise.
    """
    judged = read_key_steps(key_steps)
    report = credit_of(store, run, split, method, keep=False, **options)
    episodes = report.frame.partition_by("episode_id", as_dict=True, maintain_order=True)
    of = {str(key[0]): frame for key, frame in episodes.items()}
    scores = scored(key_steps, judged, {name: frame.height for name, frame in of.items()})
    truth = [given.mean(axis=0) for given in scores.values()]
    shard, _ = run_data(read_run(Path(run)), options.get("dataset"), split)
    groups = dict(zip(of, shard.groups.tolist(), strict=True))
    owners = np.array([groups[name] for name in scores])
    found, ranked = {}, np.zeros(len(truth), np.bool_)
    for name in report.methods:
        if report.frame[name].null_count():
            found[name] = Estimate(None, reason="its credit is unknown")
            continue
        rhos = consistency([of[episode][name].to_numpy() for episode in scores], truth)
        ranked = ~np.isnan(rhos)
        found[name] = bootstrap_mean(rhos[ranked], owners[ranked], seed=options.get("seed", 0))
    alpha = krippendorff_alpha(step for given in scores.values() for step in given.T)
    return AgreementReport(
        found,
        None if np.isnan(alpha) else alpha,
        tuple(sorted({one.annotator for one in judged})),
        episodes=int(ranked.sum()),
        unranked=int((~ranked).sum()),
        dataset=report.dataset,
        split=split,
        notes=_notes(report, alpha, int((~ranked).sum())),
    )


def _notes(report: CreditReport, alpha: float, unranked: int) -> tuple[str, ...]:
    notes = list(report.notes)
    if unranked:
        notes.append(f"{unranked} judged episodes are left out: all their steps have one score")
    if np.isnan(alpha):
        notes.append(
            "how far people agree is unknown: have some episodes judged by two of them, with and without key steps"
        )
    elif alpha < TENTATIVE:
        notes.append(
            f"annotators hardly agree (α = {alpha:.2f} < {TENTATIVE}): no method can agree with them well"
        )
    return tuple(notes)
