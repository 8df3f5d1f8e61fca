"""What stands beside the actions of a split: what was proposed, arguments as templates and numbers, who chose and how likely.

All of it comes from the rows of `transitions`, so it is known before any state is encoded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logforge.connectors.episodes import KINDS
from logforge.schemas import PROPENSITY_KINDS, SideNames, Step, Vocabulary

Array = NDArray[Any]


def plain_sides(actions: Array, propensities: Array) -> dict[str, Array]:
    """The side arrays of transitions of which nothing more is known: executed as proposed, and where there is a propensity
    it was logged."""
    size = len(actions)
    kinds = [PROPENSITY_KINDS.index(kind) for kind in ("logged", "missing")]
    return {
        "propensity_kinds": np.where(np.isnan(propensities), kinds[1], kinds[0]).astype(np.int8),
        "behaviour_policies": np.full(size, -1, np.int32),
        "proposed_actions": np.asarray(actions, np.int32),
        "argument_templates": np.full(size, -1, np.int32),
        "argument_numbers": np.zeros((size, 0), np.float32),
        "argument_numbers_known": np.zeros((size, 0), np.bool_),
    }


def side_arrays(rows: pl.DataFrame, vocabulary: Vocabulary, names: SideNames) -> dict[str, Array]:
    """The side arrays of these transitions, in their order."""
    kinds = rows["propensity_kind"].replace_strict(PROPENSITY_KINDS, list(range(len(PROPENSITY_KINDS))))
    numbers, known = _numbers(rows["argument_numbers"], names.numbers)
    return {
        "propensity_kinds": kinds.to_numpy().astype(np.int8),
        "behaviour_policies": _places(rows["policy_id"], names.policies),
        "proposed_actions": _proposed(rows, vocabulary),
        "argument_templates": rows["argument_template"].fill_null(-1).to_numpy().astype(np.int32),
        "argument_numbers": numbers,
        "argument_numbers_known": known,
    }


def proposed(step: Step) -> str | None:
    """What the agent proposed, where something else was executed; a name that was merely mended was executed as meant."""
    mended = not KINDS.isdisjoint((step.repair or "").split("+"))
    return None if mended or step.proposed_action == step.action else step.proposed_action


def _places(values: pl.Series, names: tuple[str, ...]) -> Array:
    """The place of each value among the names; -1 for null."""
    place = {name: number for number, name in enumerate(names)}
    return np.array([-1 if value is None else place[value] for value in values], np.int32)


def _proposed(rows: pl.DataFrame, vocabulary: Vocabulary) -> Array:
    """Ids of what was proposed: the executed action's where nothing else was, `<invalid>` for what has none."""
    found = rows["action_id"].to_numpy().astype(np.int32)
    other = rows["proposed_action"].is_not_null().to_numpy().nonzero()[0]
    for place in other:
        name = rows["proposed_action"][int(place)]
        found[place] = vocabulary.id(name) if name in vocabulary else vocabulary.invalid
    return found


def _numbers(cells: pl.Series, names: tuple[str, ...]) -> tuple[Array, Array]:
    """Each row's numeric arguments [N, K] with 0 where it has none, and where it has one; `cells` hold (key, value) lists."""
    numbers = np.zeros((len(cells), len(names)), np.float32)
    known = np.zeros(numbers.shape, np.bool_)
    column = {name: place for place, name in enumerate(names)}
    if not names:
        return numbers, known
    told = (
        pl.DataFrame({"row": np.arange(len(cells)), "cell": cells})
        .explode("cell")
        .unnest("cell")
        .drop_nulls()
    )
    for row, key, value in told.iter_rows():
        numbers[row, column[key]], known[row, column[key]] = value, True
    return numbers, known
