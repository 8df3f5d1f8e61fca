"""What Harbor writes beside a trajectory: a trial's `result.json` with the verifier's rewards and what stopped the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from logforge.connectors.episodes import Outcome, failure_in, first_text, object_or_empty, read_outcome
from logforge.connectors.records import Source, at
from logforge.schemas import Reject

_TOLD = ("id", "task_name", "trial_name", "verifier_result", "started_at", "finished_at", "agent_info")


class Trial(NamedTuple):
    """A trial's outcome. `locator` is that of its document."""

    locator: str
    task: str | None
    outcome: Outcome
    stopped_by: str | None
    facts: dict[str, Any]
    rejects: list[Reject]


def result_beside(path: Path) -> list[Path]:
    """`TRIAL/result.json` for `TRIAL/agent/trajectory.json`; nothing for other places."""
    inside = path.name == "trajectory.json" and path.parent.name == "agent"
    return [path.parent.parent / "result.json"] if inside else []


def trial_of(source: Source) -> Trial | Reject | None:
    """The outcome of the source's trial, where its result was found beside it."""
    for path in source.companions:
        label = source.beside(path)
        document = Source(path, label).document()
        if isinstance(document, Reject):
            return document
        if isinstance(document, dict) and ("verifier_result" in document or "exception_info" in document):
            return _trial(document, f"{label}#")
        return Reject(
            locator=f"{label}#",
            reason="no result of a trial: neither verifier_result nor exception_info",
            rule="not_a_trial_result",
        )
    return None


def _trial(document: dict[str, Any], locator: str) -> Trial:
    rejects: list[Reject] = []
    outcome = _outcome(document, locator, rejects)
    stop = object_or_empty(document.get("exception_info"))
    stopped_by = first_text(stop, "exception_type", "exception_message") if stop else None
    facts = {key: document[key] for key in _TOLD if key in document}
    if stop:
        facts["exception_info"] = {k: v for k, v in stop.items() if k != "exception_traceback"}
    return Trial(locator, first_text(document, "task_name"), outcome, stopped_by, facts, rejects)


def _outcome(document: dict[str, Any], locator: str, rejects: list[Reject]) -> Outcome:
    """The verifier's reward, or its only one under another name: 1 or 0 is a verdict, anything between is none."""
    rewards = object_or_empty(object_or_empty(document.get("verifier_result")).get("rewards"))
    key = "reward" if "reward" in rewards or len(rewards) != 1 else next(iter(rewards))
    where, under = at(locator, "/verifier_result/rewards"), "verifier_result.rewards."
    told = read_outcome(rewards, where, rejects, success=(), score=(key,), under=under)
    return told.judged(failed=0.0).void(failure_in(document))
