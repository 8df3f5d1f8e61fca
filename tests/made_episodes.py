"""Small invented episodes that several test files share, and other futures for them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from logforge.actions import ActionSpace
from logforge.connectors.base import Source
from logforge.connectors.builder import Call, EpisodeBuilder
from logforge.connectors.tau_bench import TauBench
from logforge.schemas.episode import Episode, Message, Step
from logforge.states import StateBuilder, StateConfig

TAU_BENCH = Path("/work/shared/logs/tau_bench/gpt-4o-airline.first150.json")
TOOLS = ("book", "find", "pay")
FORMAT = "invented"
T0 = 1_700_000_000_000_000
replace = msgspec.structs.replace


def finish(builder: EpisodeBuilder, name: str = "e", **more: Any) -> Episode:
    shape: dict[str, Any] = {
        "id": name,
        "format": FORMAT,
        "locator": "x:1",
        "ending": "terminal",
        "ending_reason": "",
    }
    return builder.finish(**{**shape, **more})


def parallel_episode(**more: Any) -> Episode:
    """Question, thought and two parallel calls (one fails), a retry, an answer; with times."""
    builder = EpisodeBuilder()
    builder.message("user", "book 2 seats", "x:1", created_at=T0)
    calls = [Call("find", {"n": 2}, "c1"), Call("book", {"n": 2}, "c2")]
    builder.turn("", calls, "x:2", thought="two at once", created_at=T0 + 1_000_000)
    builder.result("c2", "Error: not found", "x:3", created_at=T0 + 2_000_000)
    builder.result("c1", "3 seats", "x:4", created_at=T0 + 3_000_000)
    builder.turn("", [Call("book", {"n": 2}, "c3")], "x:5", thought="again")
    builder.result("c3", "booked", "x:6", created_at=T0 + 9_000_000)
    builder.turn("Booked 2 seats.", [], "x:7")
    return finish(builder, task="book 2 seats", **more)


def action_space(tools: tuple[str, ...] = TOOLS) -> ActionSpace:
    return ActionSpace.build([(FORMAT, None, [(tool, "tool", True) for tool in tools])])


def state_builder(text_size: int = 8, **config: Any) -> StateBuilder:
    return StateBuilder(StateConfig(**config), action_space(), text_size)


def real_episodes(count: int) -> list[Episode]:
    """The first episodes of tau-bench, where the logs are at hand."""
    if not TAU_BENCH.exists():
        return []
    found = (item for item in TauBench().read(Source(TAU_BENCH, "t")) if isinstance(item, Episode))
    return [episode for _, episode in zip(range(count), found, strict=False)]


TEXTS = st.sampled_from(["", "hello", "order 7", "Error: no such order", "what is it?"]) | st.text(max_size=5)
TIMES = st.none() | st.integers(T0, T0 + 10**10)


@st.composite
def episodes(draw: st.DrawFn) -> Episode:
    builder = EpisodeBuilder()
    builder.message("user", draw(TEXTS), "x", created_at=draw(TIMES))
    open_calls: list[str] = []
    for turn in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["calls", "results", "speech", "user"]))
        if kind == "calls":
            names = draw(st.lists(st.sampled_from([*TOOLS, "made_up"]), min_size=1, max_size=3))
            calls = [
                Call(name, {"n": draw(st.integers(0, 2))}, f"{turn}.{i}") for i, name in enumerate(names)
            ]
            builder.turn(draw(TEXTS), calls, "x", thought=draw(st.none() | TEXTS), created_at=draw(TIMES))
            open_calls += [call.call_id or "" for call in calls]
        elif kind == "results" and open_calls:
            for call_id in draw(st.lists(st.sampled_from(open_calls), unique=True)):
                open_calls.remove(call_id)
                builder.result(call_id, draw(TEXTS), "x", created_at=draw(TIMES))
        elif kind == "user":
            builder.message("user", draw(TEXTS), "x", created_at=draw(TIMES))
        else:
            builder.turn(draw(TEXTS), [], "x", created_at=draw(TIMES))
    builder.turn("the end", [], "x")
    return finish(builder, task="a task", tools=draw(st.sampled_from([None, list(TOOLS)])))


def with_another_future(episode: Episode, index: int, chance: random.Random) -> Episode:
    """The same up to decision `index` and different wherever it may be: this step and its text, all that follows,
    results that come later, and everything that is said of the episode as a whole."""
    cut = _cut(episode.steps, index)
    past = [m for m in episode.messages if m.position < cut]
    later = [
        _other_message(m, chance) for m in episode.messages if m.position >= cut and chance.random() < 0.7
    ]
    extra = [Message(0, chance.choice(["user", "tool"]), "added", "y", thought="added", created_at=T0 + 5)]
    messages = past + [replace(m, position=cut + i) for i, m in enumerate(later + extra)]
    before = [_unresolved(step, cut, chance) for step in episode.steps[:index]]
    after = [_other_step(step, chance) for step in episode.steps[index:] if chance.random() < 0.7]
    first = replace(
        _other_step(episode.steps[index], chance), parallel_group=episode.steps[index].parallel_group
    )
    steps = [replace(step, step=i) for i, step in enumerate([*before, first, *after])]
    return replace(
        episode,
        messages=messages,
        steps=steps,
        ending="truncated",
        ending_reason="other",
        success=chance.choice([True, False, None]),
        score=chance.random(),
        reference="other",
        metadata='{"other":1}',
        started_at=T0 - 10**9,
        ended_at=T0 + 10**12,
        records=99,
        policy_id="other",
        model="other",
        temperature=9.0,
    )


def _cut(steps: list[Step], index: int) -> int:
    group = steps[index].parallel_group
    return min(
        s.position
        for s in steps[: index + 1]
        if s is steps[index] or (group is not None and s.parallel_group == group)
    )


def _other_message(message: Message, chance: random.Random) -> Message:
    return replace(
        message, content=f"other {chance.random()}", thought="other", created_at=T0 + chance.randrange(10**9)
    )


def _other_step(step: Step, chance: random.Random) -> Step:
    return replace(
        step,
        action=chance.choice(TOOLS),
        kind="tool",
        arguments='{"other":1}',
        action_valid=chance.random() < 0.5,
        result="other",
        result_status=chance.choice(["ok", "error", "timeout"]),
        error_class="other",
        result_position=step.position + 1,
        latency_s=9.0,
        logged_reward=9.0,
        parallel_group=None,
    )


def _unresolved(step: Step, cut: int, chance: random.Random) -> Step:
    """An earlier step; if its result is not known at the cut, it turns out differently. It keeps name and arguments."""
    if step.result_position is not None and step.result_position < cut:
        return step
    told = chance.random() < 0.5
    return replace(
        step,
        action_valid=chance.random() < 0.5,
        result="other",
        result_status="error" if told else "missing",
        error_class="other" if told else None,
        result_position=cut + 1 if told else None,
        logged_reward=5.0,
    )
