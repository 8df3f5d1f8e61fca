"""Rows for weighted supervised fine-tuning: a turn and its weight (see logforge/exports/weights.py for how that comes about)."""

from __future__ import annotations

from collections.abc import Mapping

from logforge.exports.episodes import Decision
from logforge.exports.job import Job, Written
from logforge.exports.turns import Extra, Judge, write_turns
from logforge.exports.weights import BELOW, TurnKey, weights_of


def write(job: Job) -> list[Written]:
    """A line for each turn that is kept."""
    return write_turns(job, _judge(weights_of(job)))


def _judge(weights: Mapping[TurnKey, float]) -> Judge:
    def judge(episode: str, steps: list[int], _decisions: list[Decision]) -> Extra | str:
        weight = weights.get((episode, steps[0]))
        return BELOW if weight is None else {"weight": weight}

    return judge
