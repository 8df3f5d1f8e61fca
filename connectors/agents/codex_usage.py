"""Token usage in Codex rollouts: totals that grow, repeated at will, shared out to the responses they are of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logforge.connectors.episodes import Transcript, count_or_none

Counts = tuple[int, int]
"""Input (cached input included) and output (reasoning included)."""


@dataclass
class Usage:
    """The running total of a session."""

    total: Counts | None = None
    counted: int = 0
    """How many responses the totals so far are of."""

    def count(self, info: Any, script: Transcript) -> None:
        """Take a `token_count`: what it adds is the usage of the response since the last one that added something.

        With several responses in between the sum cannot be shared out; then only the last one's own count is used.
        So it is where totals begin with a copied history or begin anew.
        """
        total = _counts(info, "total_token_usage")
        if total is None or total == self.total:
            return
        script.end_turn()
        turns = script.turns
        known = self.total if self.total is not None or self.counted or len(turns) != 1 else (0, 0)
        added = None if known is None else (total[0] - known[0], total[1] - known[1])
        last = _counts(info, "last_token_usage")
        if len(turns) - self.counted != 1 or added is None or min(added) < 0:
            added = last
        elif self.total is None and last is not None:
            added = last  # a resumed session's first total is of more than this response
        if added is not None and len(turns) > self.counted:
            turns[-1].tokens_in, turns[-1].tokens_out = map(count_or_none, added)
        self.total, self.counted = total, len(turns)


def _counts(info: Any, key: str) -> Counts | None:
    usage = info.get(key) if isinstance(info, dict) else None
    if not isinstance(usage, dict):
        return None
    asked, said = (count_or_none(usage.get(name)) for name in ("input_tokens", "output_tokens"))
    return None if asked is None or said is None else (asked, said)
