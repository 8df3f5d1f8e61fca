"""A small world in which a reward spec is tried out: every sequence of an agent's habits, as episodes that the spec's own
query scores.

A task needs some tools to work, in their order; then stopping is success. Besides working the agent may call a tool it has
no need of, repeat its last call, make one that fails, call a tool that was not offered, ask, talk, or stop.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import sqlglot
from sqlglot import exp

from logforge.core import Tables, tables_of
from logforge.rewards import fit_scales, returns_to_go, score
from logforge.rewards.sql import Scale
from logforge.schemas import CLARIFY, RESPOND, Episode, Message, RewardSpec, Step

if TYPE_CHECKING:
    from logforge.rewards.scorers import Reads

WORK, BUSY, AGAIN, FAIL, GHOST, ASK, TALK, STOP = (
    "work", "busy", "again", "fail", "ghost", "ask", "talk", "stop",
)  # fmt: skip
HABITS = {
    WORK: "make the next call that the task needs",
    BUSY: "make a call that works and that nobody needs",
    AGAIN: "repeat the last call",
    FAIL: "make a call that fails",
    GHOST: "call a tool that was not offered",
    ASK: "ask the user",
    TALK: "talk to the user",
    STOP: "stop",
}
"""What an agent may do at a step."""
FILLERS = (BUSY, AGAIN, FAIL, GHOST, ASK, TALK)
"""What it may go on doing without getting anywhere."""
_TOOLS = 2
"""How many tools the task needs."""


@dataclass(frozen=True)
class World:
    """The tools that the task needs, in their order, and the arguments that must be filled."""

    tools: tuple[str, ...]
    slots: tuple[str, ...] = ()

    @classmethod
    def of(cls, spec: RewardSpec) -> World:
        """The world of a spec: its task needs the first two tools that the spec asks for or pays."""
        complete = spec.detectors.completeness
        named = dict.fromkeys([*(complete.tools if complete else []), *_named(spec)])
        spare = (f"tool_{n + 1}" for n in range(_TOOLS))
        return cls((*named, *spare)[:_TOOLS], tuple(complete.slots) if complete else ())

    def judges(self, spec: RewardSpec) -> RewardSpec:
        """The spec as it can be met here: of the tools that `completeness` asks for, those that the world has."""
        complete = spec.detectors.completeness
        if complete is None or set(complete.tools) <= set(self.tools):
            return spec
        here = complete.model_copy(update={"tools": [tool for tool in complete.tools if tool in self.tools]})
        detectors = spec.detectors.model_copy(update={"completeness": here})
        return spec.model_copy(update={"detectors": detectors})

    def every(self, length: int) -> list[tuple[str, ...]]:
        """Every sequence that stops within `length` steps, and every one that is cut off there."""
        moves = [habit for habit in HABITS if habit != STOP]
        ended = [(*walk, STOP) for steps in range(length) for walk in itertools.product(moves, repeat=steps)]
        return ended + list(itertools.product(moves, repeat=length))

    def solved(self, before: Sequence[str] = ()) -> tuple[str, ...]:
        """The shortest success, after some other steps."""
        return (*before, *[WORK] * len(self.tools), STOP)

    def episode(self, walk: Sequence[str]) -> Episode:
        """A sequence as an episode. Scores, latencies and the like are what such a log would say."""
        name = "/".join(walk)
        success = walk[-1:] == (STOP,) and walk.count(WORK) >= len(self.tools)
        messages, steps = [_message(0, "user", "please do it")], []
        for number, decision in enumerate(self._decisions(walk)):
            position = len(messages)
            said = None if decision.kind == "tool" else decision.result
            messages.append(_message(position, "assistant", said))
            steps.append(_step(number, position, decision))
            if decision.kind == "tool":
                messages.append(_message(len(messages), "tool", decision.result))
            elif number < len(walk) - 1:
                messages.append(_message(len(messages), "user", "go on"))
        ended = walk[-1:] == (STOP,)
        return Episode(
            episode_id=name,
            format="world",
            locator="world#",
            ending="terminal" if ended else "truncated",
            ending_reason="stopped" if ended else "step limit",
            messages=messages,
            steps=steps,
            success=success,
            score=float(success),
            task_id="task",
            model="model",
            user_id=name,
            started_at=0,
            ended_at=len(walk) * 1_000_000,
            reference="done",
        )

    def _decisions(self, walk: Sequence[str]) -> Iterator[_Decision]:
        done, last = 0, _Decision("tool", self.tools[0], '{"n":"first"}', "found first", "ok")
        filled = dict.fromkeys(self.slots, "x")
        for number, habit in enumerate(walk):
            tool = self.tools[min(done, len(self.tools) - 1)]
            if habit == WORK and done < len(self.tools):
                decision = _Decision(
                    "tool", tool, json.dumps({**filled, "need": done}), f"result {done}", "ok"
                )
                done += 1
            elif habit in (WORK, BUSY):
                decision = _Decision("tool", tool, f'{{"extra":{number}}}', f"news {number}", "ok")
            elif habit == AGAIN:
                decision = last
            elif habit == FAIL:
                decision = _Decision("tool", tool, f'{{"bad":{number}}}', "error: no", "error", "not_found")
            elif habit == GHOST:
                decision = _Decision(
                    "tool", "no_such_tool", "{}", "error: unknown tool", "error", "unknown_tool", False
                )
            elif habit == ASK:
                decision = _Decision(CLARIFY, CLARIFY, "{}", f"which one, {number}?", None)
            else:
                decision = _Decision(RESPOND, RESPOND, "{}", "done", None)
            last = decision if decision.kind == "tool" else last
            yield decision


@dataclass(frozen=True)
class _Decision:
    kind: str
    action: str
    arguments: str
    result: str
    status: str | None
    error: str | None = None
    valid: bool = True


def _message(position: int, role: str, content: str | None) -> Message:
    tokens = {"tokens_in": 100, "tokens_out": 20, "cost_usd": 0.001} if role == "assistant" else {}
    return Message(position, role, content, f"world:{position}", created_at=position * 500_000, **tokens)  # type: ignore[arg-type]


def _step(number: int, position: int, decision: _Decision) -> Step:
    tool = decision.kind == "tool"
    return Step(
        step=number,
        position=position,
        kind=decision.kind,  # type: ignore[arg-type]
        action=decision.action,
        locator=f"world:{position}",
        arguments=decision.arguments,
        action_valid=decision.valid,
        result=decision.result if tool else None,
        result_status=decision.status,  # type: ignore[arg-type]
        result_position=position + 1 if tool else None,
        error_class=decision.error,
        latency_s=1.0 if tool else None,
        logged_reward=0.0,
    )


def _named(spec: RewardSpec) -> Iterator[str]:
    """The tools that the spec's expressions compare `action` with, where they pay."""
    for _, term, _ in spec.entries():
        if isinstance(term.value, float) and term.value * term.scale < 0:
            continue
        for text in (term.when, term.value):
            tree = sqlglot.parse_one(text, read="duckdb") if isinstance(text, str) else None
            for node in tree.find_all(exp.EQ, exp.In) if tree else ():
                named = isinstance(node.this, exp.Column) and node.this.name == "action"
                found = [node.expression] if isinstance(node, exp.EQ) else node.expressions
                for literal in found if named else ():
                    if isinstance(literal, exp.Literal) and literal.is_string:
                        yield from [literal.this] if literal.this not in (RESPOND, CLARIFY) else []


def judged(
    world: World,
    spec: RewardSpec,
    walks: Iterable[tuple[str, ...]],
    scales: dict[str, Scale] | None = None,
    honest: bool = False,
) -> pl.DataFrame:
    """Every step of the sequences with its reward, its terms and its return to go: walk, step, habit, reward, reward_terms,
    return_to_go. A scorer gives what its kind of evidence would (`logforge.rewards.scorers.registry.reads_of`): see `_stand_in`. With
    `honest` it tells success from failure, as well as a scorer could."""
    tables = _tables(world, tuple(dict.fromkeys(walks)))
    frame = score(world.judges(spec), tables, scales or {}, _stand_ins(spec, tables, honest)).with_columns(
        walk=pl.col("episode_id"), reward=pl.col("reward").fill_null(float("nan"))
    )
    lengths = frame.group_by("walk", maintain_order=True).len()["len"].to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    returns = returns_to_go(frame["reward"].to_numpy(), offsets, spec.gamma)
    habit = pl.col("walk").str.split("/").list.get(pl.col("step"))
    return frame.with_columns(habit=habit, return_to_go=pl.Series(returns))


def balanced_scales(world: World, spec: RewardSpec) -> dict[str, Scale]:
    """Scales for a spec without logs: fitted on as many successes as failures of the world, about as long as those of logs."""
    if not spec.normalised:
        return {}
    detours = [(filler,) * length for filler in FILLERS for length in (0, 10, 20)]
    walks = [walk for detour in detours for walk in (world.solved(detour), (*detour, STOP))]
    tables = _tables(world, tuple(dict.fromkeys(walks)))
    return fit_scales(world.judges(spec), tables, _stand_ins(spec, tables))


@lru_cache(maxsize=8)
def _tables(world: World, walks: tuple[tuple[str, ...], ...]) -> Tables:
    return tables_of([world.episode(walk) for walk in walks])


def _stand_ins(spec: RewardSpec, tables: Tables, honest: bool = False) -> pl.DataFrame | None:
    from logforge.rewards.scorers import reads_of

    reads = {name: reads_of(term.scorer) for name, term, _ in spec.entries() if term.scorer}
    if not reads:
        return None
    outcomes = pl.DataFrame(tables.episodes.select(["episode_id", "success"]))
    steps = pl.DataFrame(tables.steps.select(["episode_id", "step", "result_status"]))
    given = steps.join(outcomes, on="episode_id", how="left", maintain_order="left").with_columns(
        is_last=pl.col("step") == pl.col("step").max().over("episode_id"), reason=pl.lit(None, pl.String)
    )
    columns = ["term", "episode_id", "step", "value", "reason"]
    return pl.concat(
        given.with_columns(term=pl.lit(name), value=_stand_in("outcome" if honest else evidence)).select(
            columns
        )
        for name, evidence in reads.items()
    )


def _stand_in(evidence: Reads) -> pl.Expr:
    """What a scorer would give. Words can be had without work: they are worth 1 whatever was done. The world answers a call
    that works well, and a success at its end; the outcome is that of the episode."""
    succeeded = pl.col("success").fill_null(False)
    worked = (pl.col("result_status") == "ok").fill_null(False)
    values = {
        "own words": pl.lit(True),
        "outcome": succeeded,
        "world": worked | (succeeded & pl.col("is_last")),
    }
    return values[evidence].cast(pl.Float64)
