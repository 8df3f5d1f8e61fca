"""The tool history as integer ids, for whoever learns embeddings of actions: the other layout of the one-hot columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from logforge.schemas import FeatureSlice, UsageError

NO_CALL = -1
"""The id of a slot without a call."""
_SLOT = re.compile(r"history\.(\d+)\.(action|status|error)")
_ROWS = 1 << 16


def history_ids(
    observations: NDArray[np.float32], layout: Sequence[FeatureSlice], part: str = "action"
) -> NDArray[np.int32]:
    """Ids [rows, slots] of the last tool calls, the newest first; NO_CALL where there is none.

    `part` is `action` (ids of the manifest's `actions`), `status` or `error` (places in the list that the slice's meaning has).
    Raises UsageError where the states have no such columns.
    """
    slots = {
        int(found[1]): one for one in layout if (found := _SLOT.fullmatch(one.name)) and found[2] == part
    }
    if not slots:
        raise UsageError(
            f"these states have no columns history.*.{part}", "build without `--without history`"
        )
    ids = np.full((len(observations), len(slots)), NO_CALL, np.int32)
    for start in range(0, len(observations), _ROWS):
        rows = np.asarray(observations[start : start + _ROWS])
        for slot, one in sorted(slots.items()):
            told = rows[:, one.start : one.stop]
            place = told.argmax(1)
            ids[start : start + len(rows), slot] = np.where(told.any(1), place, NO_CALL)
    return ids
