"""`logforge reward lint`: what is wrong with a reward spec before anyone trains on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from logforge.core import BaseReport, Lines, Tick, silent
from logforge.rewards.lint.cloning import VISITS, clone_risk
from logforge.rewards.lint.log_rules import log_findings
from logforge.rewards.lint.logs import RewardLogs, read_logs
from logforge.rewards.lint.rules import Finding, Level, spec_findings
from logforge.rewards.lint.trial import Trial
from logforge.schemas import RewardSpec
from logforge.store import Store

__all__ = ["TYPICAL_STEPS", "Finding", "LintReport", "lint"]

TYPICAL_STEPS = 20
"""How long a success takes where no logs say it."""
_ORDER = {"error": 0, "warning": 1, "note": 2}
DEFAULT_ALPHA = 1.0


@dataclass(frozen=True)
class LintReport(BaseReport):
    """The findings, worst first; what is best in the small world; and what the logs say, where a store was given.

    `break_even_steps` is how many steps a success may take and still be worth more than stopping at once (None: any number).
    """

    last = ("passed",)

    spec: str
    findings: tuple[Finding, ...]
    optimum: str
    optimal_return: float
    break_even_steps: int | None
    undiscounted_break_even_steps: int | None
    logs: RewardLogs | None = None

    @property
    def passed(self) -> bool:
        """Whether nothing is an error."""
        return not any(item.level == "error" for item in self.findings)

    def exit_code(self, strict: bool = False) -> int:
        """1 when something is an error, or with `strict` a warning."""
        return int(not self.passed or (strict and any(item.level == "warning" for item in self.findings)))

    def lines(self) -> Lines:
        """Each finding with its remedy, then the small world, the logs, and how many findings there are."""
        for item in self.findings:
            about = f" [{', '.join(item.terms)}]" if item.terms else ""
            yield f"{item.level:<8}{item.rule}{about}: {item.what}"
            yield f"        → {item.remedy}"
        yield "" if self.findings else None
        yield f"best in the small world: {self.optimum.replace('/', ' · ')} (return {self.optimal_return:.4g})"
        yield self._break_even()
        yield "\n" + self.logs.render() if self.logs else None
        counts = [f"{sum(item.level == level for item in self.findings)} {level}s" for level in _ORDER]
        yield f"\n{'passed' if self.passed else 'failed'}: {', '.join(counts)}"

    def _break_even(self) -> str:
        steps, plain = self.break_even_steps, self.undiscounted_break_even_steps
        if steps == 0:
            return "no success is worth more than stopping at once"
        many = "any number of" if steps is None else f"up to {steps}"
        beside = f" (undiscounted: {'any' if plain is None else plain})" if plain != steps else ""
        return f"a success of {many} steps is worth more than stopping at once{beside}"


def lint(
    spec: RewardSpec, store: Store | None = None, *, seed: int = 0, progress: Tick = silent
) -> LintReport:
    """Everything found, exactly in a small world and, with a store, on its episodes.

    `seed` is that of the splits, on whose train part scales are fitted. Raises UsageError when the store holds no decision.
    """
    logs = None if store is None else read_logs(store, spec, seed, progress)
    trial = Trial.of(spec, logs.scales if logs else None)
    typical = (logs.success_steps if logs else None) or TYPICAL_STEPS
    found = spec_findings(spec, trial, typical)
    if logs:  # what fires is better known from the logs
        found = [item for item in found if item.rule not in ("never_fires", "always_fires")]
        found += log_findings(spec, logs)
    found += _clone(trial, logs)
    return LintReport(
        spec=spec.hash,
        findings=tuple(sorted(found, key=lambda item: (_ORDER[item.level], item.rule, item.terms))),
        optimum=trial.optimum,
        optimal_return=trial.returns[trial.optimum],
        break_even_steps=trial.break_even(spec.gamma),
        undiscounted_break_even_steps=trial.break_even(1.0),
        logs=logs,
    )


def _clone(trial: Trial, logs: RewardLogs | None) -> Iterator[Finding]:
    risk = clone_risk(trial, logs.shares if logs else None)
    if risk is None:
        return
    named = {"even logs": risk.even} | ({"these logs' action shares": risk.logged} if logs else {})
    told = [
        f"any α for {how}" if limit is None else f"α up to {limit:.2g} for {how}"
        for how, limit in named.items()
    ]
    smallest = min((limit for limit in named.values() if limit is not None), default=DEFAULT_ALPHA)
    level: Level = "warning" if smallest < DEFAULT_ALPHA else "note"
    yield Finding(
        "clone_risk", level, (),
        f"the best action is worth {risk.gap:.3g} more than the next where it matters least; CQL finds it with {', '.join(told)}",
        "pay the outcome more, lower γ, or train with a lower --alpha" if level == "warning" else "keep --alpha within that",
        {"action_gap": risk.gap, "alpha_even": risk.even, "alpha_logged": risk.logged, "visits": float(VISITS)},
    )  # fmt: skip
