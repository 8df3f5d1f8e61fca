"""The logs that the benchmarks read: the sample's real tau-bench episodes again and again, their texts told apart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

SAMPLE = Path(__file__).resolve().parent.parent / "sample_logs" / "tau_bench"
FILE_MESSAGES = 20_000
"""About 16 MB."""


@cache
def _sample() -> list[dict[str, Any]]:
    return [row for path in sorted(SAMPLE.glob("*.json")) for row in json.loads(path.read_bytes())]


def episodes() -> Iterator[dict[str, Any]]:
    """Endless; no text but the system prompt comes twice, so that neither a cache nor compression has it easier than in life."""
    trial = 0
    while True:
        for row in _sample():
            traj = [_varied(message, trial) for message in row["traj"]]
            yield {**row, "trial": trial, "traj": traj}
        trial += 1


def _varied(message: dict[str, Any], trial: int) -> dict[str, Any]:
    text = message.get("content")
    if message["role"] == "system" or not isinstance(text, str):
        return message
    return {**message, "content": text.replace(" ", f" {trial} ", 1) if " " in text else f"{text} {trial}"}


def write_arrays(folder: Path, messages: int, per_file: int = FILE_MESSAGES) -> int:
    """tau-bench files, JSON arrays, until they hold `messages` in all. Returns how many they hold."""
    folder.mkdir(parents=True)
    total = held = files = 0
    rows: list[dict[str, Any]] = []
    for row in episodes():
        rows.append(row)
        held += len(row["traj"])
        if held >= per_file:
            (folder / f"{files:05}.json").write_text(json.dumps(rows))
            files, total, held, rows = files + 1, total + held, 0, []
        if total >= messages:
            return total
    raise AssertionError("endless")


def write_lines(path: Path, size: int) -> int:
    """One JSON-lines file of conversations, of at least `size` bytes. Returns the number of messages."""
    path.parent.mkdir(parents=True, exist_ok=True)
    messages = 0
    with path.open("w") as file:
        for row in episodes():
            file.write(json.dumps({"id": f"{row['task_id']}/{row['trial']}", "messages": row["traj"]}) + "\n")
            messages += len(row["traj"])
            if file.tell() >= size:
                return messages
    raise AssertionError("endless")


def write_array(path: Path, size: int) -> None:
    """One tau-bench file, a JSON array, of at least `size` bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for row in episodes():
            file.write(("," if file.tell() else "[") + json.dumps(row))
            if file.tell() >= size:
                file.write("]")
                return


def write_small(folder: Path, files: int) -> None:
    """One conversation a file, about 1 kB each."""
    folder.mkdir(parents=True)
    for number in range(files):
        call = {
            "id": "a",
            "type": "function",
            "function": {"name": "look_up", "arguments": f'{{"order": {number}}}'},
        }
        messages = [
            {"role": "system", "content": "You help customers of a shop."},
            {"role": "user", "content": f"Where is order {number}? " * 5},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": f"order {number}: on its way. " * 10},
            {"role": "assistant", "content": f"Order {number} is on its way."},
        ]
        row = {"id": f"c{number}", "messages": messages, "success": True}
        (folder / f"{number:06}.json").write_text(json.dumps(row))
