"""Conversations with secrets in them."""

from __future__ import annotations

import json

from logforge.schemas.tables import TABLES
from logforge.store.store import Store
from support.made_secrets import Maker

M = Maker(3)
TOKEN = "gh" + "p_" + M.some("abcdefgh01234", 36)


PASSWORD = "hunter2" + "xyzzy"


SPEC = "gamma: 1.0\nterms:\n  step: {value: -1}\n"


def conversation(
    name: str, said: str = "", command: object = None, result: str = "ok", **more: object
) -> dict[str, object]:
    arguments = json.dumps({"command": f"echo {name}" if command is None else command})
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": arguments}}
    messages = [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": said or f"please do {name}"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": result},
        {"role": "assistant", "content": "done"},
    ]
    return {"id": name, "messages": messages, **more}


def rows(store: Store, query: str) -> list[tuple[object, ...]]:
    return store.con.sql(query).fetchall()


def everything(store: Store) -> str:
    return "\n".join(str(rows(store, f"SELECT * FROM {table}")) for table in TABLES)
