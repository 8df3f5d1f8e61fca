"""The verdict on a simulation of τ²-bench, wherever one is read: in its results, or as a row of plain messages."""

from __future__ import annotations

from typing import Any

from logforge.connectors.episodes import Outcome, object_or_empty, read_outcome, text_or_none
from logforge.connectors.records import at
from logforge.schemas import Reject

FINISHED = ("user_stop", "agent_stop")
"""Reasons of an end that the harness judges; a run that ends in another way gets a reward of 0.0 unseen."""
_UNSEEN = "terminated prematurely"


def termination_of(row: dict[str, Any]) -> str | None:
    """Why the simulation ended, as the harness names it."""
    reason = text_or_none(row.get("termination_reason"))
    return None if reason is None else reason.rpartition(".")[2].lower()


def simulation_outcome(row: dict[str, Any], where: str, rejects: list[Reject]) -> Outcome:
    """The outcome of a simulation; `where` is its locator."""
    info = row.get("reward_info")
    if not isinstance(info, dict):
        told = read_outcome(row, where, rejects, success=(), score=("reward_info",)).judged()
        return told.void(_unjudged(row, {}) or (None if told.known else "the harness gave no verdict"))
    place = at(where, "/reward_info")
    told = read_outcome(info, place, rejects, success=(), score=("reward",), under="reward_info.").judged()
    return told.void(_unjudged(row, info) or (None if told.known else "the harness gave no reward"))


def _unjudged(row: dict[str, Any], info: dict[str, Any]) -> str | None:
    """Why the reward of a simulation is a placeholder."""
    reason = termination_of(row)
    if reason is not None and reason not in FINISHED:
        return f"the harness judges no run that ends with {reason}"
    note = object_or_empty(info.get("info")).get("note")
    unseen = isinstance(note, str) and _UNSEEN in note
    return "the harness judges no run that was terminated prematurely" if unseen else None
