"""Rows for KTO with TRL (Ethayarajh et al., arXiv 2402.01306): a turn, and whether its episode succeeded.

The label is the episode's, not the turn's: with a single failure late in a long episode, good early turns are labelled false.
"""

from __future__ import annotations

from logforge.exports.episodes import Decision
from logforge.exports.job import Job, Written
from logforge.exports.turns import Extra, write_turns


def write(job: Job) -> list[Written]:
    """A line for each turn of an episode whose outcome is known."""
    return write_turns(job, _label)


def _label(_episode: str, _steps: list[int], decisions: list[Decision]) -> Extra | str:
    success = decisions[0].success
    return "no outcome" if success is None else {"label": success}
