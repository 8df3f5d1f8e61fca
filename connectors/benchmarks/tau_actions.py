"""Which actions of a τ-bench task change something: a run that made none of them cannot have solved it."""

from __future__ import annotations

import re
from typing import Any

_READS = re.compile(
    r"(get|find|search|list|check|calculate|think|look|read|view|verify|transfer|run|can|grep)(_|$)"
)
"""How the names of actions begin that change nothing that the environment compares."""


def writes_in(actions: Any) -> list[str]:
    """The names of the agent's actions in a reference that change something."""
    listed = actions if isinstance(actions, list) else []
    own = [a for a in listed if isinstance(a, dict) and a.get("requestor", "assistant") == "assistant"]
    names = [action["name"] for action in own if isinstance(action.get("name"), str)]
    return [name for name in names if not _READS.match(name)]
