"""Does the state hold enough to tell how an episode will come out? A precondition of learning a value from it.

A state that tells no more than the step number does leaves the outcome to something it does not hold. Aliasing is the other
side: how often the same action in the same state came out differently.
"""

from __future__ import annotations

from collections.abc import Iterator

from logforge.core import Estimate
from logforge.report.page import Context, Finding, Number, Query, Section, Table, numbers_of, plain
from logforge.report.sections.predictability import FOLDS, ROWS, TREES, Probe, probes

_TOLD = 20
"""A rate over fewer is not worth a note."""
_ALIASING = """
WITH :logged, known AS (SELECT * FROM logged WHERE split IN ('train', 'validation') AND success IS NOT NULL), pairs AS (
  SELECT state_key, action, count(DISTINCT episode_id) AS episodes, count(DISTINCT success) AS outcomes FROM known GROUP BY ALL
)
SELECT
  (SELECT count(*) FROM known) AS decisions, (SELECT count(DISTINCT episode_id) FROM known) AS episodes,
  count(*) FILTER (episodes > 1) AS repeated_pairs, count(*) FILTER (episodes > 1 AND outcomes > 1) AS aliased_pairs,
  avg((outcomes > 1)::INTEGER) FILTER (episodes > 1) AS aliasing_rate
FROM pairs
"""


def measure(context: Context) -> Section:
    """The probes on train and validation, and the aliasing rate."""
    aliasing = context.ask("aliasing", _ALIASING)
    labels = {
        "repeated_pairs": "state and action taken in several episodes",
        "aliased_pairs": "of them with both outcomes",
        "aliasing_rate": "aliasing rate",
    }
    numbers = numbers_of(aliasing, labels, ("aliasing_rate",))
    found = () if context.missing else probes(context.seen, context.seed)
    return Section(
        "sufficiency",
        "State sufficiency",
        "How well returns and success are predicted from the state, by models that saw nothing of the split group, against the step "
        "number alone and against states shuffled among decisions of the same step. 95 % intervals from a bootstrap over groups.",
        (aliasing,),
        numbers + tuple(_numbers(context, found)),
        tuple(_tables(found)),
        findings=tuple(_findings(found, aliasing, context.missing)),
    )


def _numbers(context: Context, found: tuple[Probe, ...]) -> Iterator[Number]:
    for name, probe in zip(("return", "success"), found, strict=False):
        method = f"{FOLDS}-fold cross-validation over split groups, seed {context.seed}, at most {ROWS:,} of {context.seen.told}"
        for part, label in (("state", "from the state"), ("gain", "more than the better baseline")):
            estimate: Estimate = getattr(probe, part)
            yield Number(
                f"{name}_{part}", f"{probe.target}: {label}", plain(estimate.value), "aliasing", method=method,
                low=estimate.low, high=estimate.high,
            )  # fmt: skip


def _tables(found: tuple[Probe, ...]) -> Iterator[Table]:
    if found:
        rows = tuple(
            (probe.target, part, plain(e.value), plain(e.low), plain(e.high), e.reason or None)
            for probe in found
            for part, e in (("state", probe.state), ("step number alone", probe.time), ("shuffled states", probe.shuffled), ("gain", probe.gain))
        )  # fmt: skip
        columns = ("target", "predicted_from", "value", "low", "high", "why_not")
        yield Table(
            "Predictions of unseen groups",
            "aliasing",
            columns,
            rows,
            f"mean of a ridge regression and a forest of {TREES} trees",
        )


def _findings(found: tuple[Probe, ...], aliasing: Query, missing: str) -> Iterator[Finding]:
    for probe in found:
        if probe.gain.value is None:
            yield Finding("note", f"{probe.target}: cannot be told, {probe.gain.reason}")
            continue
        gain = f"gain {probe.gain.value:.2f} [{probe.gain.low:.2f}, {probe.gain.high:.2f}], {probe.groups} groups"
        yield {
            "sufficient": Finding("good", f"{probe.target}: the state says more than time does ({gain})"),
            "insufficient": Finding(
                "alarm",
                f"{probe.target}: the state says no more than time does ({gain}): what decides is not in it",
            ),
            "undecided": Finding("note", f"{probe.target}: too few independent episodes to tell ({gain})"),
        }[probe.verdict]
    rate = aliasing.value("aliasing_rate")
    if rate and rate > 0.5 and aliasing.value("repeated_pairs") >= _TOLD:
        yield Finding("note", f"{rate:.0%} of the decisions that were taken again came out both ways")
    if missing:
        yield Finding("note", f"not probed: {missing}")
