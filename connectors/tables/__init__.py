"""Tables with a row a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.connectors.tables.step_episode import Told, episode_of_rows, runs, without_copies
    from logforge.connectors.tables.step_row import StepRow, number_of

__all__ = ["StepRow", "Told", "episode_of_rows", "number_of", "runs", "without_copies"]

face(
    __name__,
    step_episode="Told episode_of_rows runs without_copies",
    step_row="StepRow number_of",
)
