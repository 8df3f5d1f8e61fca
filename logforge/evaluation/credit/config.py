"""The settings of credit."""

from __future__ import annotations

from dataclasses import dataclass

from logforge.core import option


@dataclass(frozen=True)
class CreditConfig:
    """Which method says what a step is worth, by whose values, and where the amounts go."""

    split: str = option("test")
    method: str = option(
        "counterfactual",
        "counterfactual, td, gae, n_step, td_lambda, retrace, decomposition, shaped, return, uniform, discounted, last, or all.",
    )
    policy: str = option("bc", "Whose values: a policy of the run.")
    n: int = option(3, "Steps of n_step.", least=1)
    lam: float = option(0.95, "λ.", least=0, most=1)
    per_seconds: float | None = option(
        None,
        "Discount by the clock, γ^(seconds / this); return and discounted only.",
        least=0,
        above=True,
    )
    dataset: str | None = option(None, "The dataset. Default: the one the run was trained on.", path="any")
    keep: bool = option(
        True, "Keep it in the store's table `credit` (the default).", switch=True, shown=False
    )
    seed: int = option(0)
    members: int = option(20, "Of the fit of values, from which the spread comes.", "--fqe-members", least=2)
    updates: int = option(300, "Of a round of it. The time grows with both.", "--fqe-updates", least=100)
    out: str | None = option(None, "Write a row for each step to this Parquet file.", path="any")
