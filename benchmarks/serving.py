"""What an event of a live session costs when the episode is short and when it is long, against building the state from the log."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from benchmarks.measure import Result, alternating
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.dataset.states.events import Answered, Decided, Event, Said
from logforge.ingestion.pipeline import ingest
from logforge.schemas.episode import Episode, Message, Step
from logforge.serving.server import StateServer
from logforge.serving.session import Session
from logforge.store.store import Store

SAMPLES = Path(__file__).parents[1] / "sample_logs"
FORMAT = "tau_bench"
SHORT, LONG = 100, 10_000
"""Events of the episode before the measured ones."""
MEASURED = 500
EVENTS_OF_ROUND = 10
TARGET = 1.2


def run() -> list[Result]:
    """Events told one by one, each decision observed, after a short and after a long past."""
    with tempfile.TemporaryDirectory() as name:
        server = _server(Path(name))
        sessions = [_after(server, past) for past in (SHORT, LONG)]
        tools = sorted(server.builder.space.tools_by_format[FORMAT])[:2]
        short, long = alternating(*(_telling(live, tools) for live in sessions))
        logs = [_log(past, tools) for past in (SHORT, LONG)]
        first, later = alternating(*(_observing(server, log) for log in logs))
    told, walked = ([1e6 * taken / MEASURED for taken in pair] for pair in ((short, long), (first, later)))
    return [
        Result(
            f"an event at length {LONG:,} against {SHORT}",
            f"{told[1]:,.0f} CPU µs per event",
            f"{told[0]:,.0f} CPU µs per event",
            told[1] / told[0],
            f"≤ {TARGET:g}",
            told[1] / told[0] <= TARGET,
        ),
        Result(
            f"a state from the log at length {LONG:,} against {SHORT}",
            f"{walked[1] * MEASURED:,.0f} CPU µs",
            f"{walked[0] * MEASURED:,.0f} CPU µs",
            walked[1] / walked[0],
            "",
            None,
        ),
    ]


def _server(home: Path) -> StateServer:
    with Store(home / "s.duckdb") as store:
        ingest(store, [SAMPLES])
        config = BuildConfig(encoder="hashing", text_size=64)
        build_dataset(store, SAMPLES / "reward.yaml", out=home, config=config)
    return StateServer(home / "default")


def _after(server: StateServer, past: int) -> Session:
    live = server.session(task="a long task", format=FORMAT)
    for event in islice(_past(past, ["a", "b"]), past):
        live.add(event)
    return live


def _past(events: int, tools: list[str]) -> list[Event]:
    """Rounds of a question, a call, its result and an answer."""
    found: list[Event] = []
    for number in range(0, events // 6 * 2 + 2, 2):
        found += [
            Said("user", f"question {number}", None, number * 1_000_000),
            Decided(tools[0], f'{{"n":{number}}}'),
            Said("assistant", "let me look", f"thought {number}"),
            Said("tool", f"result {number}"),
            Answered(number, "ok", None, f"result {number}"),
            Decided("respond", "{}", False),
            Said("assistant", f"answer {number}"),
        ]
    return found


def _telling(live: Session, tools: list[str]) -> Callable[[], None]:
    def run() -> None:
        for number in range(MEASURED // EVENTS_OF_ROUND):
            live.message("user", f"question {number}", at=float(number))
            live.observe()
            live.message("assistant", "let me look", thought=f"thought {number}")
            live.call(tools[0], {"n": number}, id=f"a{number}")
            live.observe(parallel=True)
            live.call(tools[1], {"n": number}, id=f"b{number}")
            live.result(f"b{number}", f"result {number}")
            live.result(f"a{number}", "Error: not found")
            live.observe()
            live.message("assistant", f"answer {number}")

    return run


def _log(past: int, tools: list[str]) -> Episode:
    messages = [
        Message(place, role, f"{role} {place}", "x")
        for place, role in zip(range(past), ["user", "assistant", "tool", "assistant"] * past, strict=False)
    ]
    decisions = [message for message in messages if message.role == "assistant"]
    steps = [
        Step(number, message.position, "tool", tools[0], "x", result=None, result_status="missing")
        for number, message in enumerate(decisions)
    ]
    return Episode(
        episode_id="e", format=FORMAT, locator="x", ending="truncated", ending_reason="", messages=messages, steps=steps
    )  # fmt: skip


def _observing(server: StateServer, log: Episode) -> Callable[[], None]:
    return lambda: _discard(server.observe([log]))


def _discard(found: object) -> None:
    del found
