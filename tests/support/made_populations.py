"""Stores filled with episodes of known habits."""

from __future__ import annotations

from msgspec.structs import replace

from logforge.core.frames import tables_of
from logforge.schemas.episode import Message
from support.made_rewards import episode, step


def filled(store, made):
    tables = tables_of([talk(one) if not one.messages else one for one in made])
    for name, table in tables._asdict().items():
        store.insert(name, table)
    return store


def run(name, calls, **more):
    """An episode of calls (tool, status) and a closing word, each on a task of its own."""
    steps = [step(n, tool, status, arguments=f'{{"n":{n}}}') for n, (tool, status) in enumerate(calls)]
    return episode(name, [*steps, step(len(calls))], task_id=name, **more)


def population():
    """Ten solved and ten failed tasks, all of like length, and three closed by force that the log calls solved."""
    good = [run(f"good{n}", [("find", "ok"), ("book", "ok")], success=True) for n in range(10)]
    bad = [run(f"bad{n}", [("find", "ok"), ("echo", "ok")], success=False) for n in range(10)]
    forced = [run(f"forced{n}", [("find", "ok"), ("book", "error")], success=True) for n in range(3)]
    return [*good, *bad, *forced]


def talk(one, messages=None):
    """The episode with some messages: what its length is judged by."""
    count = messages or 2 * len(one.steps)
    return replace(one, messages=[Message(n, "user", f"{one.episode_id}", f"a:{n}") for n in range(count)])
