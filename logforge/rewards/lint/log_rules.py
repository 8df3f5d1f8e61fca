"""The rules of `logforge reward lint` that look at a spec on logged episodes."""

from __future__ import annotations

from collections.abc import Iterator

from logforge.rewards.lint.logs import RewardLogs, shown
from logforge.rewards.lint.rules import Finding
from logforge.rewards.sql import when
from logforge.schemas import RewardSpec


def log_findings(spec: RewardSpec, logs: RewardLogs) -> Iterator[Finding]:
    """What the logs say against the spec."""
    yield from _fired(spec, logs)
    yield from _ranked(logs)
    paid = [item for item in logs.forced if item.paid > 0]
    if paid:
        yield Finding(
            "forced_close_paid", "warning", (), f"{len(paid)} episodes were closed too early and are paid their outcome all the same",
            "guard it: `when: success AND NOT premature_close`", {"first": paid[0].locator},
        )  # fmt: skip
    if logs.useless:
        named = ", ".join(item.tool for item in logs.useless[:5])
        yield Finding(
            "useless_tools", "note", (), f"{len(logs.useless)} tools never worked in a successful episode ({named})",
            "see that calling them costs something: a larger `no_progress` penalty, or pay for key steps",
        )  # fmt: skip
    if logs.null:
        yield Finding(
            "null_rewards", "warning" if logs.null * 2 > logs.episodes else "note", (),
            f"{logs.null} of {logs.episodes} episodes have no reward: an input is missing", "guard it, or mark the term optional",
        )  # fmt: skip


def _fired(spec: RewardSpec, logs: RewardLogs) -> Iterator[Finding]:
    for item in logs.terms:
        term = spec.term(item.term)
        if item.fires == 0:
            yield Finding(
                "never_fires", "warning", (item.term,), "it pays nothing at any logged step",
                "mend its condition, or remove it; `logforge explain` shows what it reads",
            )  # fmt: skip
        elif item.fires == 1 and term.at == "step" and when(term).text != "TRUE" and not term.potential:
            yield Finding(
                "always_fires",
                "warning",
                (item.term,),
                "its condition holds at every logged step",
                "drop it, or mend it",
            )


def _ranked(logs: RewardLogs) -> Iterator[Finding]:
    if logs.advantage.value is not None and (logs.advantage.low or 0.0) <= 0:
        yield Finding(
            "ranks_like_length", "note" if (logs.advantage.high or 0.0) >= 0 else "warning", (),
            f"the return ranks successes {logs.verdict} (AUC {shown(logs.auc)}; length {shown(logs.length_auc)})",
            "pay what tells success from failure, or know that it does not",
        )  # fmt: skip
    beaten = logs.best_failure_beats or 0.0
    if beaten >= 0.5:
        worst = next(item for item in logs.suspects if item.kind == "failed")
        yield Finding(
            "failure_pays", "warning", (), f"a failed episode is paid more than {beaten:.0%} of the successes (rank {worst.rank})",
            "read it, and pay what it lacks", {"where": worst.locator, "return": worst.total, "beats": beaten},
        )  # fmt: skip
