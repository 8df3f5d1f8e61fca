"""ATIF trajectories (Agent Trajectory Interchange Format, 1.0 to 1.8): steps of system, user and agent.

A record is a trajectory. Sub-agents embedded in it are episodes of their own. A step that was copied from an earlier
trajectory is context, not a decision taken again. The reward is not in it: Harbor writes it into the trial's result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

from logforge.connectors.chat import tool_names
from logforge.connectors.episodes import (
    FINISHING,
    Call,
    EpisodeBuilder,
    Outcome,
    bad_part,
    close,
    content_id,
    cost_or_none,
    count_or_none,
    cut_by,
    episode_id,
    failure_in,
    first_bool,
    first_number,
    first_text,
    first_user_text,
    micros,
    object_or_empty,
    read_outcome,
    read_reward,
    read_rows,
    reject,
    task_group,
    text_of,
    text_or_none,
    unread_calls,
)
from logforge.connectors.records import Head, Source, at, canonical
from logforge.connectors.trajectories.harbor import Trial, result_beside, trial_of
from logforge.schemas import Ending, Episode, Reading, Reject, Skip

_VERSION = re.compile(rb'"schema_version"\s*:\s*"ATIF-v1\.')
_UUID = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)
_CONTINUES = re.compile(r"(.+)-cont-(\d{1,9})$")
_SUMMARIZES = re.compile(r"(.+)-summarization-\d+-\w+$")
_TOKEN_LISTS = ("prompt_token_ids", "completion_token_ids", "logprobs")
_KEPT_APART = ("steps", "subagent_trajectories")


class Atif:
    """ATIF documents, as Harbor and others write them."""

    name = "atif"
    version = 6
    record = "one trajectory: the document, a line or an array element; and the trial's result beside it"
    fills = ("score", "rewards", "tools", "thoughts", "tokens", "cost", "times")

    def sniff(self, head: Head) -> float:
        """A document that names its version and has steps."""
        named = {"schema_version", "steps"} <= head.top and _VERSION.search(head.data)
        return 0.95 if named and head.container in ("object", "array") else 0.0

    def companions(self, path: Path) -> list[Path]:
        """The trial's result, where Harbor laid the trajectory."""
        return result_beside(path)

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per trajectory, and one per sub-agent embedded in it."""
        found = trial_of(source)
        trial = found if isinstance(found, Trial) else None
        if isinstance(found, Reject):
            yield found

        def row(value: Any, locator: str) -> Iterator[Reading]:
            nonlocal trial
            if not isinstance(value, dict) or not isinstance(value.get("steps"), list):
                yield reject(locator, "no list of `steps`", "", value)
                return
            own_id, used, trial = _identity(self.name, value), trial, None
            yield from self._trajectory(value, at(locator, ""), own_id, None, locator, used)

        yield from read_rows(source, row)
        if trial is not None:
            yield Skip(reason="trial_result_without_run")

    def _trajectory(
        self,
        row: dict[str, Any],
        where: str,
        own_id: str,
        parent: str | None,
        locator: str,
        trial: Trial | None = None,
    ) -> Iterator[Reading]:
        trajectory = _Trajectory()
        for index, step in enumerate(row["steps"]):
            trajectory.add(step, f"{where}/steps/{index}")
        builder = trajectory.builder
        children = [] if row.get("subagent_trajectories") is None else row["subagent_trajectories"]
        readings: list[Reading] = []
        for index, child in enumerate(children if isinstance(children, list) else [children]):
            place = f"{where}/subagent_trajectories/{index}"
            if not isinstance(child, dict) or not isinstance(child.get("steps"), list):
                builder.rejects.append(bad_part(place, "sub-agent without steps", "bad_subagent", child))
                continue
            name = first_text(child, "trajectory_id", "session_id") or str(index)
            below = episode_id(self.name, own_id, name)
            for reading in self._trajectory(child, place, below, own_id, place):
                if isinstance(reading, Reject) and reading.episode_id is None:
                    builder.rejects.append(reading)
                else:
                    readings.append(reading)
        episode = self._episode(trajectory, row, own_id, parent, locator, trial)
        if parent is None or builder.messages:
            yield from close(builder, episode)
        else:
            yield from builder.rejects  # a sub-agent that left no message is no episode; its parent takes its parts
        yield from readings

    def _episode(
        self,
        trajectory: _Trajectory,
        row: dict[str, Any],
        own_id: str,
        parent: str | None,
        locator: str,
        trial: Trial | None,
    ) -> Episode:
        agent, extra = object_or_empty(row.get("agent")), object_or_empty(row.get("extra"))
        session = text_or_none(row.get("session_id"))
        before, above = _links(self.name, row) if parent is None else (None, parent)
        model = first_text(agent, "model_name") or trajectory.model
        task = first_user_text(trajectory.builder)
        ending, reason = trajectory.ending(row, trial)
        # The verdict on a run that goes on elsewhere is not one on its first part.
        judged = trial if row.get("continued_trajectory_ref") is None else None
        outcome = judged.outcome if judged else self._outcome(trajectory.builder, extra, locator)
        trajectory.builder.rejects += trial.rejects if trial else []
        return trajectory.builder.finish(
            id=own_id,
            format=self.name,
            locator=locator,
            records=int(parent is None) + int(trial is not None),
            ending=ending,
            ending_reason=reason,
            native_id=first_text(row, "trajectory_id") or session,
            session_id=session,
            task_id=(trial and trial.task) or first_text(extra, "task_id", "task_name", "instance_id"),
            group_id=task_group(task) if parent is None else None,
            task=task,
            parent_episode_id=above,
            continues_episode_id=before,
            model=model,
            policy_id=model or first_text(agent, "name"),
            temperature=first_number(object_or_empty(agent.get("extra")), "temperature"),
            tools=tool_names(agent.get("tool_definitions")),
            **outcome.fields(),
            cost_usd=cost_or_none(object_or_empty(row.get("final_metrics")).get("total_cost_usd")),
            metadata=canonical(
                {key: value for key, value in row.items() if key not in _KEPT_APART}
                | {"step_details": trajectory.details}
                | ({"trial": trial.facts} if trial else {})
            ),
        )

    @staticmethod
    def _outcome(builder: EpisodeBuilder, extra: dict[str, Any], locator: str) -> Outcome:
        told = read_outcome(extra, at(locator, "/extra"), builder.rejects, under="extra.")
        return told.void(failure_in(extra))


_STEP: Final = frozenset(
    {"step_id", "timestamp", "source", "model_name", "message", "reasoning_content", "reasoning_effort"}
    | {"tool_calls", "observation", "metrics", "extra", "is_copied_context", "llm_call_count"}
)
"""The keys of a step."""


class _Trajectory:
    """Takes a trajectory's steps in order."""

    def __init__(self) -> None:
        self.builder = EpisodeBuilder()
        self.model: str | None = None
        self.details: list[dict[str, Any]] = []

    def add(self, step: Any, where: str) -> None:
        """Take one step: its message, its calls, and what they gave."""
        source = step.get("source") if isinstance(step, dict) else None
        if source not in ("system", "user", "agent"):
            self.builder.rejects.append(
                bad_part(where, "step whose source is none of system, user, agent", "bad_step", step)
            )
            return
        self._note(step)
        calls = 0
        if source != "agent":
            self._say(source, step, where)
        elif step.get("is_copied_context") is True:
            self._say("assistant", step, where)
        else:
            calls = self._turn(step, where)
        self._observe(step, where, calls)

    def _say(self, role: str, step: dict[str, Any], where: str) -> None:
        said = step.get("message")
        if said:
            place = _first(said, f"{where}/message")
            thought = first_text(step, "reasoning_content") if role == "assistant" else None
            self.builder.message(role, said, place, thought=thought, created_at=_time(step))
        elif said is None:
            self.builder.silent(step, _STEP, where, decides=role == "assistant")

    def _reward(self, metrics: dict[str, Any], where: str) -> float | None:
        if metrics.get("reward") is not None:
            return read_reward(metrics, f"{where}/metrics", self.builder.rejects)
        extra = object_or_empty(metrics.get("extra"))
        return read_reward(extra, f"{where}/metrics/extra", self.builder.rejects)

    def _turn(self, step: dict[str, Any], where: str) -> int:
        text, listed = step.get("message"), step.get("tool_calls")
        if lost := unread_calls(step, _STEP):
            self.builder.unknown(where, lost, decides=True)
        elif text is None and not listed:
            self.builder.silent(step, _STEP, where, decides=True)
        calls = self._calls(listed, f"{where}/tool_calls")
        metrics = object_or_empty(step.get("metrics"))
        model = text_or_none(step.get("model_name"))
        self.model = self.model or model
        more: dict[str, Any] = {
            "thought": first_text(step, "reasoning_content"),
            "created_at": _time(step),
            "model": model,
            "tokens_in": count_or_none(metrics.get("prompt_tokens")),
            "tokens_out": count_or_none(metrics.get("completion_tokens")),
            "cost_usd": cost_or_none(metrics.get("cost_usd")),
        }
        place = _first(step.get("message"), f"{where}/message") if text else where
        reward = self._reward(metrics, where)
        if calls or (text and not listed):
            self.builder.turn(text, calls, place, reward=reward, **more)
            return len(calls)
        if text or more["thought"] or (text == "" and step.get("observation") is None):
            # It called something unreadable, or only thought: no decision that could be told.
            self.builder.message("assistant", text, place, **more)
        if reward is not None:
            earned = bad_part(f"{where}/metrics/reward", "reward without an action", "bad_reward", reward)
            self.builder.rejects.append(earned)
        return 0

    def _calls(self, listed: Any, where: str) -> list[Call]:
        calls = []
        if listed is not None and not isinstance(listed, list):
            self.builder.rejects.append(bad_part(where, "tool_calls is no list", "bad_tool_calls", listed))
        for index, call in enumerate(listed if isinstance(listed, list) else ()):
            name = text_or_none(call.get("function_name")) if isinstance(call, dict) else None
            if name is None:
                self.builder.rejects.append(
                    bad_part(f"{where}/{index}", "tool call without a name", "nameless_call", call)
                )
            else:
                call_id = text_or_none(call.get("tool_call_id"))
                proposed = text_or_none(object_or_empty(call.get("extra")).get("proposed_action"))
                calls.append(Call(name, call.get("arguments"), call_id, f"{where}/{index}", proposed))
        return calls

    def _observe(self, step: dict[str, Any], where: str, calls: int) -> None:
        observation = step.get("observation")
        if observation is None:
            self.builder.silent(step, _STEP, where, decides=False)
            return
        results, place = object_or_empty(observation).get("results"), f"{where}/observation"
        if not isinstance(results, list):
            self.builder.rejects.append(
                bad_part(place, "observation without results", "bad_observation", observation)
            )
            return
        named = sum(1 for r in results if isinstance(r, dict) and r.get("source_call_id") is not None)
        for index, result in enumerate(results):
            here = f"{place}/results/{index}"
            if isinstance(result, dict):
                answers = calls if calls and len(results) == 1 and not named else 1
                self._result(result, here, _Place(step, calls, answers))
            else:
                self.builder.rejects.append(bad_part(here, "result is no object", "bad_result", result))

    def _result(self, result: dict[str, Any], where: str, place: _Place) -> None:
        """Pair by id; without one, by step. What answers no call (a handoff, a terminal's screen) the agent just sees."""
        call_id, text = text_or_none(result.get("source_call_id")), text_of(result.get("content"))
        if result.get("subagent_trajectory_ref") is not None or result.get("extra") is not None:
            told = {key: result[key] for key in ("subagent_trajectory_ref", "extra") if key in result}
            self.details.append({"step_id": place.step.get("step_id"), "result_of": call_id} | told)
            text = "" if text is None and "subagent_trajectory_ref" in told else text
        copied = place.step.get("is_copied_context") is True
        if not copied and (call_id is not None or place.calls):
            flag = first_bool(object_or_empty(result.get("extra")), "is_error")
            if self.builder.result(call_id, text, where, failed=flag or None, created_at=_time(place.step)):
                for _ in range(place.answers - 1):
                    self.builder.also_answers(None)
        elif text:
            role = "system" if place.step.get("source") == "system" else "user"
            self.builder.message(role, text, where, created_at=_time(place.step))

    def _note(self, step: dict[str, Any]) -> None:
        """Keep what has no column: cached tokens, effort. Token ids and log-probabilities are only counted."""
        kept: dict[str, Any] = {
            key: step[key] for key in ("reasoning_effort", "llm_call_count", "extra") if key in step
        }
        metrics = {
            key: len(value) if key in _TOKEN_LISTS and isinstance(value, list) else value
            for key, value in object_or_empty(step.get("metrics")).items()
        }
        if step.get("is_copied_context") is True:
            kept["is_copied_context"] = True
        if metrics:
            kept["metrics"] = metrics
        if kept:
            self.details.append({"step_id": step.get("step_id")} | kept)

    def ending(self, row: dict[str, Any], trial: Trial | None) -> tuple[Ending, str]:
        """A trajectory that goes on elsewhere is cut, as is one that the harness stopped; else it ended as its `extra` says, or
        with a call that finishes or the agent's last word."""
        if row.get("continued_trajectory_ref") is not None:
            return "truncated", "continued in another trajectory"
        if trial is not None and trial.stopped_by is not None:
            return "truncated", f"stopped: {trial.stopped_by[:60]}"
        told = object_or_empty(row.get("extra"))
        if told.get("ending") in get_args(Ending):
            return told["ending"], text_or_none(told.get("ending_reason")) or "as the trajectory's extra says"
        if (why := cut_by(row) or cut_by(told)) is not None:
            return "truncated", why
        if self.builder.last_action in FINISHING:
            return "terminal", f"the last action is {self.builder.last_action}"
        if self.builder.ends_unanswered:
            return "truncated", "last call is unanswered"
        if self.builder.messages and self.builder.messages[-1].role == "assistant":
            return "terminal", "end of conversation"
        return "truncated", "the log stops before the agent's answer"


class _Place(NamedTuple):
    """Where a result stands: its step, the step's calls, and how many of them it answers."""

    step: dict[str, Any]
    calls: int
    answers: int


def _identity(name: str, row: dict[str, Any]) -> str:
    """By the run's ids where they are unique in the world (UUIDs); else by content, for ids such as `run-1` repeat."""
    session, trajectory = text_or_none(row.get("session_id")), text_or_none(row.get("trajectory_id"))
    if any(_UUID.search(part) for part in (session, trajectory) if part):
        return episode_id(name, session or "", trajectory or "")
    return content_id(name, row)


def _links(name: str, row: dict[str, Any]) -> tuple[str | None, str | None]:
    """The episodes before and above, which Harbor names in the session id: `<run>-cont-2`, `<run>-summarization-1-summary`."""
    session = text_or_none(row.get("session_id"))
    if session is None or row.get("trajectory_id") is not None or not _UUID.search(session):
        return None, None
    if above := _SUMMARIZES.match(session):
        return None, episode_id(name, above.group(1), "")
    match = _CONTINUES.match(session)
    if match is None:
        return None, None
    number = int(match.group(2))
    before = match.group(1) if number <= 1 else f"{match.group(1)}-cont-{number - 1}"
    return episode_id(name, before, ""), None


def _first(message: Any, where: str) -> str:
    """The locator of a message's first text."""
    return f"{where}/0" if isinstance(message, list) else where


def _time(step: dict[str, Any]) -> int | None:
    return micros(step.get("timestamp")) if step.get("timestamp") is not None else None
