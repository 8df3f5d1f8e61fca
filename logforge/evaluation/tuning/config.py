"""The settings of a sweep."""

from __future__ import annotations

from dataclasses import dataclass

from logforge.core import option


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(f"{text!r} is not a list of numbers such as 0.3,1") from None


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
