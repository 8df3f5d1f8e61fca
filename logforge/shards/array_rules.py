"""What must hold in the arrays of one split: dtypes and shapes, offsets, ends, values. Each rule yields its problems."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logforge.schemas import PROPENSITY_KINDS, CheckFailed, Problem, SideNames, Vocabulary
from logforge.shards.arrays import ARRAYS, SplitArrays

NO_NAMES = SideNames()
_CHUNK = 1 << 14


def shapes(
    arrays: SplitArrays, action_size: int, observation_size: int, number_size: int = 0
) -> list[Problem]:
    """Every array has its dtype, and the lengths agree with one another and with the manifest."""
    episodes, steps = len(arrays.success), len(arrays.actions)
    lengths = {"N": steps, "E": episodes, "E+1": episodes + 1, "N+E": steps + episodes}
    lengths |= {"D": observation_size, "A": action_size, "K": number_size}
    problems = []
    for name, spec in ARRAYS.items():
        array, shape = getattr(arrays, name), tuple(lengths[part] for part in spec.shape.split(", "))
        if array.dtype != np.dtype(spec.dtype) or array.shape != shape:
            found = f"{array.dtype} {array.shape}"
            problems.append(Problem(f"is {found}, must be {spec.dtype} {shape} ({spec.shape})", field=name))
    return problems


def offsets(arrays: SplitArrays) -> Iterator[Problem]:
    """Episodes lie one after another, none is empty, none is left over, and observations keep step with them."""
    first, last = arrays.episode_offsets[[0, -1]]
    if first != 0 or last != arrays.size:
        yield Problem(f"run from {first} to {last}, must from 0 to {arrays.size}", field="episode_offsets")
    short = np.diff(arrays.episode_offsets) < 1
    if short.any():
        yield Problem(f"episode {int(np.argmax(short))} has no step", field="episode_offsets")
    if (arrays.observation_offsets != arrays.episode_offsets + np.arange(arrays.episode_count + 1)).any():
        yield Problem("must be episode_offsets plus the episode's number", field="observation_offsets")


def ends(arrays: SplitArrays) -> Iterator[Problem]:
    """Every episode has one end, its last step, which is terminal or timeout and not both."""
    last = np.zeros(arrays.size, bool)
    last[arrays.episode_offsets[1:] - 1] = True
    ended = arrays.terminals | arrays.timeouts
    yield from _steps(arrays, arrays.terminals & arrays.timeouts, "terminal and timeout at once", "terminals")
    yield from _steps(arrays, ended & ~last, "an end before the episode's last step", "terminals")
    yield from _steps(arrays, last & ~ended, "a last step that is neither terminal nor timeout", "terminals")


def values(arrays: SplitArrays, vocabulary: Vocabulary) -> Iterator[Problem]:
    """Numbers are finite, ids are known, and no mask forbids what was done or allows `<invalid>` or `<other>`."""
    for name in ("rewards", "returns", "weights"):
        yield from _steps(arrays, ~np.isfinite(getattr(arrays, name)), "not finite", name)
    yield from _steps(arrays, arrays.weights < 0, "negative", "weights")
    unlikely = (arrays.propensities <= 0) | (arrays.propensities > 1)
    yield from _steps(arrays, unlikely, "not in (0, 1], yet it happened", "propensities")
    outside = (arrays.actions < 0) | (arrays.actions >= vocabulary.size)
    yield from _steps(arrays, outside, f"not an id from 0 to {vocabulary.size - 1}", "actions")
    allowed = _allowed(arrays, np.where(outside, 0, arrays.actions))
    forbidden = ~allowed & ~outside & ~np.isin(arrays.actions, vocabulary.unplayable)
    yield from _steps(arrays, forbidden, "forbidden by its mask, yet not `<invalid>`", "actions")
    yield from _rows(~np.isin(arrays.success, (-1, 0, 1)), "not 1, 0 or -1", "success")
    yield from _rows(not_finite(arrays.observations), "not finite", "observations")
    invalid, empty = _faulty(arrays.masks, vocabulary)
    yield from _rows(invalid, "allows `<invalid>` or `<other>`", "masks")
    yield from _rows(empty, "allows nothing", "masks")


def sides(arrays: SplitArrays, vocabulary: Vocabulary, names: SideNames) -> Iterator[Problem]:
    """What stands beside an action fits it: ids are known, a template is one of its own, what is unknown is 0."""
    missing = arrays.propensity_kinds == PROPENSITY_KINDS.index("missing")
    for name, low, size in (
        ("propensity_kinds", 0, len(PROPENSITY_KINDS)),
        ("behaviour_policies", -1, len(names.policies)),
        ("proposed_actions", 0, vocabulary.size),
        ("argument_templates", -1, len(names.templates)),
    ):
        array = getattr(arrays, name)
        yield from _steps(arrays, (array < low) | (array >= size), f"not from {low} to {size - 1}", name)
    unlike = missing != np.isnan(arrays.propensities)
    yield from _steps(
        arrays, unlike, "a propensity without a kind, or a kind without one", "propensity_kinds"
    )
    # The last place answers for -1, which any action may have.
    owners = np.array([*(vocabulary.id(item.action) for item in names.templates), -1], np.int32)
    owner = owners[np.clip(arrays.argument_templates, -1, len(names.templates))]
    foreign = (owner >= 0) & (owner != arrays.actions)
    yield from _steps(arrays, foreign, "a template of another action", "argument_templates")
    for rows, what in (
        (~np.isfinite(arrays.argument_numbers), "not finite"),
        ((arrays.argument_numbers != 0) & ~arrays.argument_numbers_known, "unknown, yet not 0"),
    ):
        yield from _steps(arrays, np.asarray(rows.any(axis=1)), what, "argument_numbers")


def _steps(arrays: SplitArrays, bad: NDArray[Any], what: str, field: str) -> Iterator[Problem]:
    for problem in _rows(bad, what, field):
        episode = arrays.episode_index[int(np.argmax(bad))]
        yield Problem(f"{problem.what} (episode {episode})", field=field)


def _rows(bad: NDArray[Any], what: str, field: str) -> Iterator[Problem]:
    count = int(bad.sum())
    if count:
        yield Problem(f"{what}: {count} rows, first {int(np.argmax(bad))}", field=field)


def _faulty(masks: NDArray[Any], vocabulary: Vocabulary) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which masks allow what no policy can do and which allow nothing, in chunks: masks need not fit into memory."""
    invalid, empty = np.zeros(len(masks), bool), np.zeros(len(masks), bool)
    for start in range(0, len(masks), _CHUNK):
        here = slice(start, start + _CHUNK)
        chunk = masks[here]
        invalid[here] = chunk[:, vocabulary.unplayable].any(axis=1)
        empty[here] = np.count_nonzero(chunk, axis=1) == 0
    return invalid, empty


def _allowed(arrays: SplitArrays, actions: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each step's mask allows what was done, in chunks."""
    found = np.zeros(arrays.size, bool)
    for start in range(0, arrays.size, _CHUNK):
        here = slice(start, start + _CHUNK)
        found[here] = arrays.masks[arrays.observation_rows[here], actions[here]]
    return found


def not_finite(rows: NDArray[Any]) -> NDArray[Any]:
    """Which rows hold NaN or infinity, in chunks that fit the cache."""
    chunks = (rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK))
    return np.concatenate([np.zeros(0, bool), *(~np.isfinite(chunk).all(axis=1) for chunk in chunks)])


def check_arrays(
    arrays: SplitArrays,
    vocabulary: Vocabulary,
    observation_size: int,
    name: str = "split",
    names: SideNames = NO_NAMES,
) -> None:
    """Raise CheckFailed with every rule these arrays break, and where first."""
    problems = list(shapes(arrays, vocabulary.size, observation_size, len(names.numbers))) or list(
        offsets(arrays)
    )
    # Rows can only be placed in their episodes once shapes and offsets are right.
    problems = problems or [*ends(arrays), *values(arrays, vocabulary), *sides(arrays, vocabulary, names)]
    if problems:
        raise CheckFailed(f"the arrays of {name!r} are not consistent", problems, "build the dataset again")
