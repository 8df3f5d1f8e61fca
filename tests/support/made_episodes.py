"""Small invented episodes that several test files share, and other futures for them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from logforge.connectors.benchmarks.tau_bench import TauBench
from logforge.connectors.episodes.builder import Call, EpisodeBuilder
from logforge.connectors.records.base import Source
from logforge.dataset.actions.vocabulary import ActionSpace
from logforge.dataset.states.builder import StateBuilder
from logforge.dataset.states.config import StateConfig
from logforge.schemas.episode import Episode
from logforge.testing import variants

TAU_BENCH = Path("/work/shared/logs/tau_bench/gpt-4o-airline.first150.json")
TOOLS = ("book", "find", "pay")
FORMAT = "invented"
T0 = 1_700_000_000_000_000


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
        builder.offer(draw(st.sampled_from([None, None, [], list(TOOLS), list(TOOLS[:1])])))
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
    """The same up to decision `index` and different wherever it may be (see logforge/testing/variants.py)."""
    return variants.with_another_future(episode, index, chance, TOOLS)
