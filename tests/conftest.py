"""What many tests share: where the logs are, and small stores made from them."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from logforge.store.store import Store
from support.thoroughness import THOROUGH, enough

# A submission is judged on the same examples every time; runs by hand explore new ones.
settings.register_profile("ci", derandomize=True)
settings.register_profile("thorough", max_examples=500, deadline=None)
settings.load_profile(enough("ci" if os.environ.get("CI") else "default", "thorough"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is for a thorough run, and start with what takes longest: no worker is to sit idle at the end."""
    left_out = [item for item in items if not THOROUGH and item.get_closest_marker("thorough")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    items.sort(key=lambda item: item.path.name not in LONG)


LONG = {"test_docs.py", "test_crash.py", "test_closed_loop.py", "test_training.py", "test_diagnosis.py"}


@pytest.fixture(scope="session", autouse=True)
def no_network() -> Iterator[None]:
    """Whoever looks for another machine than this one fails: nothing here needs a network."""
    connect, look_up = socket.socket.connect, socket.getaddrinfo

    def connect_here(self: socket.socket, address: Any) -> None:
        _refuse_far(address[0] if self.family != socket.AF_UNIX else "localhost")
        connect(self, address)

    def look_up_here(host: Any, *more: Any, **named: Any) -> Any:
        _refuse_far(host)
        return look_up(host, *more, **named)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(socket.socket, "connect", connect_here)
        patched.setattr(socket, "getaddrinfo", look_up_here)
        yield


def _refuse_far(host: str | bytes | None) -> None:
    name = host.decode() if isinstance(host, bytes) else host
    if name not in (None, "", "localhost", "::1") and not str(name).startswith("127."):
        raise RuntimeError(f"a test looks for {name!r} in the network")


@pytest.fixture
def store(tmp_path: Path):
    """An empty store."""
    with Store(tmp_path / "store.duckdb") as opened:
        yield opened


@pytest.fixture(scope="session")
def conversation() -> Callable[..., dict[str, Any]]:
    """Makes an OpenAI-style row: one question, one call, its result, an answer."""

    def make(name: str, tool: str = "lookup", result: str = "found", **more: Any) -> dict[str, Any]:
        call = {
            "id": "c1",
            "type": "function",
            "function": {"name": tool, "arguments": json.dumps({"key": name})},
        }
        messages = [
            {"role": "user", "content": f"please look up {name}"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": result},
            {"role": "assistant", "content": f"{name} is {result}"},
        ]
        return {"id": name, "task_id": name, "success": True, "messages": messages, **more}

    return make


@pytest.fixture(scope="session")
def write_jsonl() -> Callable[[Path, list[Any]], Path]:
    """Writes rows as JSON lines."""

    def write(path: Path, rows: list[Any]) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        return path

    return write


@pytest.fixture(scope="session")
def exports_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the store and the dataset of made_exports.py; tests only read it."""
    from support.made_exports import build

    return build(tmp_path_factory.mktemp("exports"))
