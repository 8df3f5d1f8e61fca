"""The vectors of states on disk, found by their episodes: what a split holds may lie in the files of several splits and datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from logforge.core import ChosenRows, Part, StoredRows
from logforge.schemas import Mismatch

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class StateRows:
    """Rows, and where those of each episode begin: `places` has `episode_id` and `first`."""

    rows: StoredRows
    places: pl.DataFrame

    @classmethod
    def of_splits(cls, parts: Mapping[str, Sequence[Part]], episodes: pl.DataFrame) -> StateRows:
        """From the parts of each split. `episodes` (episode_id, split, steps) are all episodes whose rows these are, n + 1 for
        n steps, in the order of the rows within a split. Raises Mismatch where it is another number of rows.
        """
        frames = []
        start = 0
        for split, held in parts.items():
            frame = episodes.filter(pl.col("split") == split)
            ends = start + (frame["steps"] + 1).cum_sum()
            frames.append(
                frame.select("episode_id", first=pl.Series(ends - frame["steps"] - 1, dtype=pl.Int64))
            )
            found = sum(map(len, held))
            if frame["steps"].sum() + frame.height != found:
                remedy = "build the dataset again"
                raise Mismatch(
                    f"rows of observations, {split}", frame["steps"].sum() + frame.height, found, remedy
                )
            start += found
        rows = StoredRows([part for held in parts.values() for part in held], np.dtype(np.float32))
        return cls(rows, pl.concat(frames))

    def joined(self, other: StateRows) -> StateRows:
        """With the rows of other episodes behind."""
        moved = other.places.with_columns(pl.col("first") + len(self.rows))
        rows = StoredRows([*self.rows.parts, *other.rows.parts], self.rows.dtype)
        return StateRows(rows, pl.concat([self.places, moved]))

    def only(self, episodes: pl.Series) -> StateRows:
        """Those of some episodes; no other is found any more."""
        return StateRows(self.rows, self.places.filter(pl.col("episode_id").is_in(episodes.implode())))

    def observations(self, episodes: Sequence[str], steps: Sequence[int]) -> F32:
        """The rows of these episodes one behind the other, n + 1 for n steps; they stay on the disk until they are indexed."""
        asked = pl.DataFrame(
            {"episode_id": episodes, "steps": steps}, {"episode_id": pl.String, "steps": pl.Int64}
        )
        first = asked.join(self.places, on="episode_id", how="left", maintain_order="left")[
            "first"
        ].to_numpy()
        counts = asked["steps"].to_numpy() + 1
        before = np.cumsum(counts) - counts
        chosen = np.repeat(first - before, counts) + np.arange(counts.sum())
        whole = self._whole_parts(chosen)
        return StoredRows(whole or [ChosenRows(self.rows, chosen)], self.rows.dtype).as_array()

    def _whole_parts(self, chosen: npt.NDArray[np.int64]) -> list[Part]:
        """The parts that these rows are, where they are all rows of some that follow each other."""
        if not len(chosen) or (np.diff(chosen) != 1).any():
            return []
        first, stop = np.searchsorted(self.rows.starts, [chosen[0], chosen[-1] + 1])
        if [self.rows.starts[first], self.rows.starts[stop]] != [chosen[0], chosen[-1] + 1]:
            return []
        return list(self.rows.parts[first:stop])
