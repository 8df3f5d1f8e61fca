"""Whether conservative Q-learning would clone the log instead of improving on it, with this reward and these habits."""

from __future__ import annotations

from collections.abc import Iterator

from logforge.report.page import Context, Finding, Number, Section, plain, table_of
from logforge.rewards.lint import (
    AGAIN,
    ASK,
    BUSY,
    DEFAULT_ALPHA,
    FAIL,
    GHOST,
    STOP,
    TALK,
    WORK,
    CloneRisk,
    Trial,
    clone_risk,
)
from logforge.rewards.sql import Scale

_HABITS = f"""
WITH own AS (
  SELECT s.*, e.ending, e.success, max(s.step) OVER (PARTITION BY s.episode_id) AS last,
    row_number() OVER (PARTITION BY s.episode_id, s.action, s.arguments ORDER BY s.step) > 1 AS again
  FROM steps AS s JOIN episodes AS e USING (episode_id)
  WHERE s.episode_id IN (SELECT episode_id FROM transitions WHERE dataset = :dataset AND parent_id IS NULL AND step = 0)
), helpful AS (SELECT DISTINCT action FROM own WHERE success AND result_status = 'ok')
SELECT
  CASE
    WHEN kind <> 'tool' AND step = last AND ending = 'terminal' THEN '{STOP}'
    WHEN kind = 'clarify' THEN '{ASK}'
    WHEN kind <> 'tool' THEN '{TALK}'
    WHEN NOT action_valid THEN '{GHOST}'
    WHEN result_status IN ('error', 'timeout', 'refused') THEN '{FAIL}'
    WHEN again THEN '{AGAIN}'
    WHEN action IN (FROM helpful) OR NOT EXISTS (FROM helpful) THEN '{WORK}'
    ELSE '{BUSY}'
  END AS habit,
  count(*) AS decisions, count(*) / sum(count(*)) OVER () AS share
FROM own GROUP BY habit ORDER BY habit
"""


def measure(context: Context) -> Section:
    """The largest α with which tabular CQL still finds the best actions of the small world, given the log's habits."""
    habits = context.ask("habits", _HABITS)
    risk, why = _risk(context, dict(zip(habits.column("habit"), habits.column("share"), strict=True)))
    return Section(
        "clone",
        "Clone risk",
        "CQL pulls the value of an action down the more, the rarer the log takes it: past some α the log's habit looks best. Exact, in "
        "the small world of `logforge reward lint` (docs/reward-lint.md), for even logs and for this log's shares of habits.",
        (habits,),
        tuple(_numbers(risk)) if risk else (),
        (table_of(habits, "What the log does"),),
        findings=tuple(_findings(risk, why)),
    )


def _risk(context: Context, shares: dict[str, float]) -> tuple[CloneRisk | None, str]:
    if context.missing:
        return None, context.missing
    if context.spec.scored:
        return None, "the spec has scorers, which the small world cannot run; see `logforge reward lint`"
    scales = {name: Scale(**values) for name, values in context.manifest.reward["scales"].items()}
    risk = clone_risk(Trial.of(context.spec, scales), shares)
    return (
        risk,
        ""
        if risk
        else "to work and then to stop is not what the spec makes best: see `logforge reward lint`",
    )


def _numbers(risk: CloneRisk) -> Iterator[Number]:
    method = "logforge.rewards.lint.cloning.clone_risk of the dataset's spec"
    yield Number(
        "gap",
        "return the best action is worth more than the next, at least",
        plain(risk.gap),
        "habits",
        method=method,
    )
    for name, label, value in (
        ("alpha_even", "largest α, even logs", risk.even),
        ("alpha_logged", "largest α, this log", risk.logged),
    ):
        yield Number(name, label, "any" if value is None else plain(value), "habits", method=method)


def _findings(risk: CloneRisk | None, why: str) -> Iterator[Finding]:
    if risk is None:
        yield Finding("note", f"not told: {why}")
        return
    limits = [limit for limit in (risk.even, risk.logged) if limit is not None]
    if limits and min(limits) < DEFAULT_ALPHA:
        yield Finding(
            "note",
            f"past α = {min(limits):.2g} CQL clones the log: pay the outcome more, lower γ, or train with a lower --alpha",
        )
    else:
        yield Finding(
            "good",
            f"CQL finds the best actions up to α = {min(limits):.2g}"
            if limits
            else "CQL finds the best actions with any α",
        )
