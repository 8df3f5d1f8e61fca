"""InterCode results: one JSON document, the runs by their task id. A record is one entry.

Models' runs hold parallel lists of actions, observations and rewards (and thoughts, for ReAct); people's runs hold a
`trajectory` and one reward at its end. The environment has two tools, `execute` and `submit`; code is no tool's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import PurePath
from typing import Any, NamedTuple

from logforge.connectors.episodes import (
    Call,
    EpisodeBuilder,
    bad_part,
    close,
    content_id,
    entry_keys,
    episode_id,
    failure_in,
    first_number,
    first_user_text,
    read_keyed,
    read_outcome,
    reject,
    text_of,
    text_or_none,
)
from logforge.connectors.records import Head, NotLiteral, Source, at, canonical, literal
from logforge.schemas import Ending, Episode, Reading

_BRACKETS = re.compile(r"\s*(execute|submit)\[(.*)\]", re.DOTALL)
_OPEN_BRACKET = re.compile(r"\s*(execute|submit)\[(.*)", re.DOTALL)
_REFUSED = re.compile(r"Error executing |Failed \d+/\d+ Test|Failed Test Case|Test case did not pass")
_MODEL = re.compile(
    r"(?:ic_)?(?:bash|sql|python|ctf)_(?:multiturn_)?(?P<model>.+?)(?:_(?P<strategy>react|plan_?solve|try_?again))?_\d+_turns"
)


class _Turn(NamedTuple):
    action: Any = None
    observation: Any = None
    reward: Any = None
    valid: Any = None
    thought: Any = None


class Intercode:
    """InterCode's results of models."""

    name = "intercode"
    version = 4
    record = "one entry of the document: a run on a task"
    fills = ("outcome", "score", "rewards", "thoughts")

    def sniff(self, head: Head) -> float:
        """An object of entries with an environment and a turn history."""
        return 0.95 if any({"environment", "turn_history"} <= keys for keys in entry_keys(head)) else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per entry."""
        name = source.place.name
        yield from read_keyed(source, lambda key, entry, locator: self._entry(key, entry, locator, name))

    def _entry(self, key: str, entry: dict[str, Any], locator: str, name: str) -> Iterator[Reading]:
        history = entry.get("turn_history")
        if not isinstance(history, dict) or not isinstance(history.get("actions"), list):
            yield reject(locator, "no `turn_history` with a list of actions", "", entry)
            return
        summary = entry["summary"] if isinstance(entry.get("summary"), dict) else {}
        limit = first_number(summary, "turns_max")
        run = _Run(text_or_none(entry.get("environment")), limit, history, at(locator, "/turn_history"))
        builder = _asked(entry, locator)
        run.add_turns(builder)
        where = at(locator, "/summary")
        told = read_outcome(
            summary, where, builder.rejects, success=(), score=("max_reward",), under="summary."
        )
        outcome = told.judged().void(failure_in(entry, summary))
        ending, reason = run.ending(builder)
        model, policy = _who(name)
        rest = {key: value for key, value in entry.items() if key not in ("turn_history", "query")}
        episode = builder.finish(
            id=content_id(self.name, {key: entry}),
            format=self.name,
            locator=locator,
            ending=ending,
            ending_reason=reason,
            native_id=key,
            task_id=_task_id(entry, key),
            task=first_user_text(builder),
            group_id=_group(entry),
            policy_id=policy,
            model=model,
            **outcome.fields(),
            metadata=canonical(rest | ({"harness_submit": run.forced} if run.forced else {})),
        )
        yield from close(builder, episode)


class IntercodeHuman:
    """InterCode's runs of people."""

    name = "intercode_human"
    version = 4
    record = "one entry of the document: a person's run on a task"
    fills = ("outcome", "score")

    def sniff(self, head: Head) -> float:
        """An object of entries with an environment, a trajectory and its reward or gold answer."""
        fits = (
            {"environment", "trajectory"} <= keys and {"gold", "reward"} & keys for keys in entry_keys(head)
        )
        return 0.95 if any(fits) else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per entry."""
        yield from read_keyed(source, self._entry)

    def _entry(self, key: str, entry: dict[str, Any], locator: str) -> Iterator[Reading]:
        if not isinstance(entry.get("trajectory"), list):
            yield reject(locator, "no list `trajectory`", "", entry)
            return
        builder = _asked(entry, locator)
        environment = text_or_none(entry.get("environment"))
        for index, step in enumerate(entry["trajectory"]):
            where = at(locator, f"/trajectory/{index}")
            if isinstance(step, dict):
                turn = _Turn(step.get("action"), step.get("observation"))
                _add_turn(builder, turn, environment, f"{where}/action", f"{where}/observation")
            else:
                builder.rejects.append(bad_part(where, "step is no object", "bad_step", step))
        yield from close(builder, self._episode(builder, key, entry, locator))

    def _episode(self, builder: EpisodeBuilder, key: str, entry: dict[str, Any], locator: str) -> Episode:
        told = read_outcome(entry, locator, builder.rejects, success=(), score=("reward",))
        outcome = told.judged()
        hidden = ("trajectory", "query", "gold")
        return builder.finish(
            id=content_id(self.name, {key: entry}),
            format=self.name,
            locator=locator,
            ending="terminal" if outcome.known else "truncated",
            ending_reason="graded: the last query was the answer" if outcome.known else "no reward",
            native_id=key,
            task_id=_task_id(entry, key),
            task=first_user_text(builder),
            group_id=_group(entry),
            source_kind="human_demo",
            policy_id="human",
            **outcome.fields(),
            reference=text_or_none(entry.get("gold")),
            metadata=canonical({key: value for key, value in entry.items() if key not in hidden}),
        )


class _Run:
    """The turns of a model's run. `forced` is the submission that the harness made at the step limit."""

    def __init__(
        self, environment: str | None, limit: float | None, history: dict[str, Any], where: str
    ) -> None:
        self.environment, self.limit, self.where = environment, limit, where
        lists = [history.get(k) for k in ("actions", "observations", "rewards", "valid_action", "thoughts")]
        self.turns = [_Turn(*row) for row in zip_longest(*(v if isinstance(v, list) else [] for v in lists))]
        self.forced: dict[str, Any] | None = None

    def add_turns(self, builder: EpisodeBuilder) -> None:
        """Add every turn that the agent took."""
        for index, turn in enumerate(self.turns):
            if self.limit is not None and index >= self.limit and turn.action == "submit":
                self.forced = turn._asdict()
                continue
            action, observation = (f"{self.where}/{name}/{index}" for name in ("actions", "observations"))
            _add_turn(builder, turn, self.environment, action, observation)

    def ending(self, builder: EpisodeBuilder) -> tuple[Ending, str]:
        """The environment stops at a reward of 1, or when the agent submits; anything else stopped the run."""
        if self.forced:
            return "truncated", f"step limit: {self.limit:.0f} turns, then the harness submitted"
        if self.turns and _number(self.turns[-1].reward) == 1.0:
            return "terminal", "solved: the last reward is 1"
        if builder.last_action == "submit":
            return "terminal", "submitted"
        if self.limit is not None and len(self.turns) >= self.limit:
            return "truncated", f"step limit: {self.limit:.0f} turns"
        return "truncated", "neither solved nor submitted"


def _asked(entry: dict[str, Any], locator: str) -> EpisodeBuilder:
    builder = EpisodeBuilder()
    query = text_of(entry.get("query"))
    if query:
        builder.message("user", query, at(locator, "/query"))
    return builder


def _add_turn(
    builder: EpisodeBuilder, turn: _Turn, environment: str | None, action: str, observation: str
) -> None:
    """A call and its result. A turn without an action is set aside whole, or its result would answer another call."""
    if not isinstance(turn.action, str):
        builder.rejects.append(bad_part(action, "turn without an action", "bad_action", turn._asdict()))
        return
    reward, text = _number(turn.reward), text_of(turn.observation)
    call = call_of(turn.action, environment)._replace(locator=action)
    builder.turn(None, [call], action, thought=text_or_none(turn.thought), reward=reward)
    if text is not None:
        builder.result(None, text, observation, failed=_failed(text, turn.valid))


def call_of(action: str, environment: str | None = None) -> Call:
    """The tool that an action's text uses: `submit`, `skip`, or `execute` with the code as its command."""
    word, _, rest = action.strip().partition(" ")
    if action.strip() in ("submit", "skip"):
        return Call(action.strip(), None)
    if environment == "ic_ctf" and word == "submit":
        return Call("submit", {"answer": rest})
    named = _BRACKETS.match(action) or _OPEN_BRACKET.match(action)
    if named is None:
        return Call("execute", {"command": action})
    argument = "command" if named[1] == "execute" else "answer"
    return Call(named[1], {argument: named[2]})


def _failed(text: str, valid: Any) -> bool | None:
    """The log's flag, but for the harness's own complaints: it flags those of actions that it never ran as valid."""
    if valid is False or _REFUSED.match(text):
        return True
    if text.startswith("{'output'"):
        try:
            return bool(literal(text).get("error"))
        except (NotLiteral, AttributeError):
            return None
    return False if valid is True else None


def _number(value: Any) -> float | None:
    return first_number({"": value}, "")


def _task_id(entry: dict[str, Any], key: str) -> str:
    """The task in its data set (ids count from 0 in each), or in its environment where no data set is named."""
    within = text_or_none(entry.get("dataset")) or text_or_none(entry.get("environment")) or "intercode"
    number = text_or_none(entry.get("task_id")) or text_or_none(entry.get("query_idx")) or key
    return f"{PurePath(within).stem}/{number}"


def _group(entry: dict[str, Any]) -> str | None:
    """Runs of people and of all models on one question share it."""
    query = text_of(entry.get("query"))
    return episode_id("intercode", entry.get("environment"), query.strip()) if query else None


def _who(name: str) -> tuple[str | None, str | None]:
    """Model and policy from the file's name, the only place where InterCode writes them."""
    match = _MODEL.match(name)
    if match is None:
        return None, None
    model, strategy = match["model"], match["strategy"]
    return model, f"{model}/{strategy}" if strategy else model
