"""A reward spec over steps: terms, rewards, returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.rewards import returns
    from logforge.rewards.model import RewardModel
    from logforge.rewards.pipeline import fit_scales, read_inputs, score
    from logforge.rewards.returns import (
        Floats,
        Offsets,
        as_discounts,
        check_cuts,
        last_to_first,
        possible_returns,
        returns_to_go,
        time_discounts,
        unusual,
    )
    from logforge.rewards.spec import load_spec, parse_spec

__all__ = [
    "Floats", "Offsets", "RewardModel", "as_discounts", "check_cuts", "fit_scales", "last_to_first",
    "load_spec", "parse_spec", "possible_returns", "read_inputs", "returns", "returns_to_go", "score",
    "time_discounts", "unusual",
]  # fmt: skip

face(
    __name__,
    model="RewardModel",
    pipeline="fit_scales read_inputs score",
    returns="Floats Offsets as_discounts check_cuts last_to_first possible_returns returns_to_go "
    "time_discounts unusual",
    spec="load_spec parse_spec",
)
