"""inspect_ai's archives, made and broken."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path
from typing import Any

from support.places import DATA


def document(name: str) -> dict[str, Any]:
    return json.loads((FIXTURES / name).read_text("utf-8"))


def archive(path: Path, members: dict[str, str], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, text in members.items():
            file.writestr(name, text)
    return path


def members(log: dict[str, Any]) -> dict[str, str]:
    found = {f"samples/{n}_epoch_1.json": json.dumps(sample) for n, sample in enumerate(log["samples"])}
    return found | {
        "header.json": json.dumps({key: log[key] for key in ("version", "status", "eval", "plan")})
    }


def with_method(path: Path, method: int) -> Path:
    """The archive with another compression method written on every member."""
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        at = data.find(mark)
        while at >= 0:
            struct.pack_into("<H", data, at + offset, method)
            at = data.find(mark, at + 4)
    path.write_bytes(data)
    return path


FIXTURES = DATA / "connectors"
