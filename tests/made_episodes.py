"""Small invented episodes that several test files share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from logforge.actions import ActionSpace
from logforge.connectors.base import Source
from logforge.connectors.builder import Call, EpisodeBuilder
from logforge.connectors.tau_bench import TauBench
from logforge.schemas.episode import Episode
from logforge.states import StateBuilder, StateConfig

TAU_BENCH = Path("/work/shared/logs/tau_bench/gpt-4o-airline.first150.json")
TOOLS = ("book", "find", "pay")
FORMAT = "invented"
T0 = 1_700_000_000_000_000


def finish(builder: EpisodeBuilder, name: str = "e", **more: Any) -> Episode:
    shape: dict[str, Any] = {"id": name, "format": FORMAT, "locator": "x:1", "ending": "terminal", "ending_reason": ""}
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
