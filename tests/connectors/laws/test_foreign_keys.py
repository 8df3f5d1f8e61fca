"""Nothing is invented of what is not understood: a key with another name, a value that lies deeper, a block of another kind.

Calls never become words, words and calls never vanish, and what is set aside leaves a trace.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from logforge.connectors.detection import get
from logforge.connectors.records.base import Source
from logforge.schemas.episode import Reading
from logforge.testing.soundness import unsound
from support.foreign_keys import invented, lost, spoiled
from support.places import DATA
from support.thoroughness import enough

UNREAD = {
    "chatgpt": frozenset[str](),
    "claude_ai": frozenset({"summaries"}),  # they repeat the thinking in fewer words
    "har": frozenset({"headers", "tools", "headersSize"}),
    "mlflow": frozenset({"mlflow.chat.tools", "events"}),
}
"""Formats, each with the keys that its connector passes over on purpose."""
RECORDS = [
    (name, path.name, number, record)
    for name in UNREAD
    for path in sorted((DATA / "connectors" / name).iterdir())
    for number, (_, record) in enumerate(Source(path, "log").records())
]


def read(record: object, name: str, path: Path) -> list[Reading]:
    path.write_text(json.dumps(record) + "\n")
    return list(get(name).read(Source(path, "log")))


@pytest.mark.parametrize(
    ("name", "record"),
    [pytest.param(name, record, id=f"{name}-{file}-{number}") for name, file, number, record in RECORDS],
)
def test_what_is_not_understood_makes_no_decision(name, record, tmp_path):
    path = tmp_path / "log.json"
    whole = read(record, name, path)
    changed = list(spoiled(record, UNREAD[name]))
    for what, value in random.Random(name).sample(changed, min(len(changed), enough(250, 10_000))):
        readings = read(value, name, path)
        assert list(unsound(readings)) == [], what
        assert not invented(whole, readings), what
        assert not lost(whole, readings, what), what


TRACES = ("langfuse", "langsmith_runs", "otlp")
SPANS = [
    (name, path.name, number, record)
    for name in TRACES
    for path in sorted((DATA / "connectors" / name).iterdir())
    for number, (_, record) in enumerate(Source(path, "log").records())
]


@pytest.mark.parametrize(
    ("name", "record"),
    [pytest.param(name, record, id=f"{name}-{file}-{number}") for name, file, number, record in SPANS],
)
def test_a_trace_makes_no_utterance_of_what_is_not_understood(name, record, tmp_path):
    """But an answer in JSON may be one that the model gave. Names of events are free."""
    path = tmp_path / "log.json"
    whole = read(record, name, path)
    changed = list(spoiled(record, frozenset({"events"})))
    for what, value in random.Random(name).sample(changed, min(len(changed), enough(60, 10_000))):
        readings = read(value, name, path)
        assert list(unsound(readings)) == [], what
        assert not {said for _, said in invented(whole, readings) if said[:1] not in "{["}, what
