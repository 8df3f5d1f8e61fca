"""The settings of the estimates, of playing, of credit and of a sweep. Loads nothing heavy: the command line reads it."""

from __future__ import annotations

from dataclasses import dataclass

from logforge.core import option


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(f"{text!r} is not a list of numbers such as 0.3,1") from None


@dataclass(frozen=True)
class EstimateConfig:
    """How a run's policies are estimated on held-out episodes."""

    dataset_path: str | None = option(
        None, "The dataset. Default: the one the run was trained on.", "--dataset", path="any"
    )
    split: str = option("test")
    seed: int = option(0)
    members: int = option(20, "Of its bootstrap; a learner's seeds share them.", "--fqe-members")
    updates: int = option(300, "Of a round of it. The time grows with both.", "--fqe-updates")


@dataclass(frozen=True)
class PlayConfig:
    """How a run's policies are played in a simulator."""

    simulator: str | None = option(None, "Play there: it-ops or support-escalation.", metavar="NAME")
    episodes: int = option(1000, "Played of each policy. Needs --simulator.", least=2)
    baselines: str = option(
        "none",
        "all: also what was logged, the rule by hand, and online RL in the simulator. Needs --simulator.",
    )
    held_out: bool = option(False, "Play in wordings that no log has.", "--held-out-wording")


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
    out: str | None = option(None, "Write a row for each step to this Parquet file.", path="any")


@dataclass(frozen=True)
class SweepConfig:
    """What a sweep varies, and how it tells which setting is best."""

    alphas: tuple[float, ...] = option(
        (0.1, 0.3, 1.0, 3.0, 10.0),
        "CQL's; numbers with commas.",
        "--alpha",
        given="0.1,0.3,1,3,10",
        read=_numbers,
    )
    gammas: tuple[float, ...] = option(
        (), "Discounts. Default: the dataset's.", "--gamma", given="", read=_numbers
    )
    step_costs: tuple[float, ...] = option(
        (0.0,), "Taken off the reward of every step.", "--step-cost", given="0", read=_numbers
    )
    seeds: int = option(3, "Of each combination.")
    simulator: str | None = option(None, "Play there and choose by success: it-ops or support-escalation.")
    episodes: int = option(200, "Played of each policy.")
    fqe_updates: int = option(300, "Of a round of fitted Q evaluation.")
