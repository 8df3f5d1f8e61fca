"""Logs that agree with themselves, with conflicts planted in them: every kind at every level, and what only looks like one.

Each plant is a pair of episodes of two decisions (a tool, then an answer). Texts are random words, so that no two plants are
alike; what a plant varies within its pair is only what makes it a conflict of its kind and level.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

TOOLS = ("look_up", "search", "open_ticket")
KINDS = ("outcome", "contrast", "label", "demonstration")
LEVELS = ("exact", "canonical", "near")
LABEL_LEVELS = LEVELS[:2]
ASKED = 120
"""Words of a question: one of them changed leaves a cosine well above the threshold of 0.98, whatever PCA is fitted on."""


class Plant(NamedTuple):
    """A conflict that is to be found, by the number of its pair, or a pair that is none (level "")."""

    kind: str
    level: str
    number: int


class Planted(NamedTuple):
    """The rows of a log, the conflicts in it, and the ids of its demonstrations."""

    rows: list[dict[str, Any]]
    truth: set[Plant]
    demonstrations: list[str]


def plant(each: int, seed: int = 0) -> Planted:
    """`each` conflicts of every kind and level, among twice as many pairs that agree."""
    words = _Words(seed)
    wanted = [(kind, level) for kind in KINDS for level in (LABEL_LEVELS if kind == "label" else LEVELS)]
    decoys = ("agreement", "equal choice", "other wording", "other answer", "single")
    made = [(*which, True) for which in wanted * each]
    made += [(decoys[n % len(decoys)], "", False) for n in range(2 * len(made))]
    words.random.shuffle(made)
    rows: list[dict[str, Any]] = []
    truth, demonstrations = set(), []
    for number, (kind, level, conflict) in enumerate(made):
        rows += _pair(words, kind, level, number)
        if conflict:
            truth.add(Plant(kind, level, number))
        if kind == "demonstration":
            demonstrations.append(f"{number}-a")
    return Planted(rows, truth, demonstrations)


def number_of(native_id: str) -> int:
    """The number of the pair that an episode belongs to."""
    return int(native_id.split("-")[0])


class _Words:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        letters = "bdfgklmnprstvz"
        self.known = [
            "".join(self.random.choice(letters) + self.random.choice("aeiou") for _ in range(3))
            for _ in range(600)
        ]

    def text(self, size: int) -> str:
        return " ".join(self.random.choice(self.known) for _ in range(size))


def _pair(words: _Words, kind: str, level: str, number: int) -> Iterator[dict[str, Any]]:
    asked = words.text(ASKED)
    first, other = words.random.sample(TOOLS, 2)
    same = {"result": words.text(30), "answer": words.text(20)}
    fresh = {"result": words.text(30), "answer": words.text(20)}
    a = {"asked": asked, "tool": first, "success": True, **same}
    b = dict(a)
    if kind in ("outcome", "other wording"):
        b.update(fresh, success=False)
    elif kind == "contrast":
        b.update(fresh, tool=other, success=False)
    elif kind in ("demonstration", "equal choice"):
        b.update(fresh, tool=other)
    elif kind == "label":
        b.update(success=False)
    elif (
        kind == "other answer"
    ):  # the same states to the end, and another answer: its failure contradicts nothing
        a.update(tool=None)
        b.update(tool=None, answer=fresh["answer"])
    if kind == "other wording":
        b["asked"] = " ".join(asked.split()[: ASKED // 2] + words.text(ASKED // 2).split())
    elif level == "near":
        told = asked.split()
        told[words.random.randrange(ASKED)] = words.random.choice(words.known)
        b["asked"] = " ".join(told)
    if level == "canonical":
        for row, numbers in ((a, (4711, 12)), (b, (815, 9))):
            row["asked"] = f"{row['asked']} for order {numbers[0]} of {numbers[1]}"
    yield _row(f"{number}-a", a)
    if kind != "single":
        yield _row(f"{number}-b", b)


def _row(name: str, of: dict[str, Any]) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": of["asked"]}]
    if of["tool"]:
        called = {"name": of["tool"], "arguments": json.dumps({"key": of["asked"][:20]})}
        call = {"id": "c", "type": "function", "function": called}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": "c", "content": of["result"]})
    messages.append({"role": "assistant", "content": of["answer"]})
    return {"id": name, "success": of["success"], "messages": messages}
