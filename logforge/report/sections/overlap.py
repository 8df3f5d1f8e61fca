"""How far the log supports other policies than its own: propensities, and the effective sample size that is left."""

from __future__ import annotations

from collections.abc import Iterator

from logforge.report.page import Context, Finding, Query, Section, numbers_of, table_of

SMALLEST = 0.01
"""A propensity below this makes weights above 100."""
LEFT = 0.1
_TOTALS = """
WITH :logged, weighed AS (
  SELECT *, 1 / (propensity * len(list_filter(mask, lambda x: x))) AS w FROM logged WHERE propensity IS NOT NULL AND action_valid
)
SELECT
  count(*) AS decisions, avg((propensity IS NULL)::INTEGER) AS missing,
  avg((propensity_kind = 'estimated')::INTEGER) AS estimated, avg((proposed_action IS NOT NULL)::INTEGER) AS changed,
  min(propensity) AS lowest,
  quantile_cont(propensity, 0.01) AS percent_1, quantile_cont(propensity, 0.1) AS percent_10, median(propensity) AS median,
  quantile_cont(propensity, 0.9) AS percent_90,
  count(*) FILTER (propensity < 0.01) AS below_1_percent,
  (SELECT sum(w) ** 2 / sum(w * w) FROM weighed) AS effective_size,
  (SELECT sum(w) ** 2 / sum(w * w) / count(*) FROM weighed) AS effective_share
FROM logged
"""
_KINDS = """
WITH :logged
SELECT
  propensity_kind, coalesce(policy_id, '(not logged)') AS policy, count(*) AS decisions, min(propensity) AS lowest,
  median(propensity) AS median
FROM logged GROUP BY ALL ORDER BY decisions DESC, propensity_kind, policy LIMIT 20
"""


def measure(context: Context) -> Section:
    """Quantiles of the propensities and what importance weights would leave."""
    totals, kinds = context.ask("totals", _TOTALS), context.ask("kinds", _KINDS)
    labels = {
        "decisions": "decisions",
        "missing": "without a propensity",
        "estimated": "with an estimated propensity",
        "changed": "executed another action than was proposed",
    }
    if totals.value("lowest") is not None:
        labels |= {
            "lowest": "lowest",
            "percent_1": "1 %",
            "percent_10": "10 %",
            "median": "median",
            "percent_90": "90 %",
            "below_1_percent": "below 0.01",
            "effective_size": "effective sample size",
            "effective_share": "of the decisions with a propensity",
        }
    return Section(
        "overlap",
        "Propensity overlap",
        "The probability with which the behaviour policy took its action. Effective sample size (Kish): (Σw)² / Σw² with "
        "w = 1 / (propensity × allowed actions), the weights of a policy that picks evenly among the allowed actions.",
        (totals, kinds),
        numbers_of(totals, labels, ("missing", "estimated", "changed", "effective_share")),
        (table_of(kinds, "By kind and policy"),),
        findings=tuple(_findings(totals)),
    )


def _findings(totals: Query) -> Iterator[Finding]:
    missing, share = totals.value("missing"), totals.value("effective_share")
    if missing:
        yield Finding(
            "note",
            f"{missing:.0%} of the decisions have no propensity: weighted estimates need them estimated first",
        )
    if totals.value("estimated"):
        yield Finding(
            "note",
            f"{totals.value('estimated'):.0%} of the propensities are estimates: what is weighted by them is no better than "
            "the manifest's `propensity_model` says",
        )
    if totals.value("below_1_percent"):
        yield Finding(
            "note",
            f"{totals.value('below_1_percent'):,} propensities lie below {SMALLEST}: their weights exceed 100",
        )
    if share is not None and share < LEFT:
        yield Finding(
            "alarm",
            f"an even policy keeps {share:.1%} of the sample: estimates for other policies will not hold",
        )
    elif share is not None:
        yield Finding("good", f"an even policy keeps {share:.0%} of the sample")
