"""A small store with a dataset that has all that exports must cope with, for the tests of every format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.ingestion.pipeline import ingest
from logforge.store.store import Store

SPEC = "gamma: 1.0\nterms: {success: {when: success, value: 10, at: terminal}, step: {value: -1}}\n"
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("search", "lookup")]


def call(name: str, arguments: Any, call_id: str = "c") -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def trial(task: str, tool: str, n: int, works: bool, **more: Any) -> dict[str, Any]:
    """One question, one call, its result and an answer."""
    messages = [
        {"role": "user", "content": f"please do {task}"},
        {"role": "assistant", "content": None, "tool_calls": [call(tool, {"q": task, "n": n})]},
        {"role": "tool", "tool_call_id": "c", "content": f"found by {tool} in trial {n}"},
        {"role": "assistant", "content": f"{task} done"},
    ]
    return {**odd(f"{task} {tool} {n}", messages, works), "task_id": task, **more}


def odd(task: str, messages: list[dict[str, Any]], works: bool | None = True, **more: Any) -> dict[str, Any]:
    verdict = {} if works is None else {"success": works}
    return {"id": task, "task_id": task, "messages": messages, **verdict, **more}


def rows() -> list[dict[str, Any]]:
    """`search` works in 9 trials of 10 and `lookup` in 1 of 10; and one episode for each oddity."""
    found = [
        trial("often", tool, n, (n > 0) if tool == "search" else (n == 0), tools=TOOLS)
        for tool in ("search", "lookup")
        for n in range(10)
    ]
    both = [call("search", {"q": "a"}, "c"), call("lookup", {"key": [1, 2.5, None]}, "d")]
    results = [
        {"role": "tool", "tool_call_id": "d", "content": "Error: not found"},
        {"role": "tool", "tool_call_id": "c", "content": "  spaces \u2028 and “quotes”"},
    ]
    asked = {"role": "user", "content": "look at both"}
    found += [
        odd(
            "unjudged",
            [asked, {"role": "assistant", "content": "let me see", "tool_calls": [call("search", {})]}],
            None,
        ),
        odd(
            "parallel",
            [
                {"role": "developer", "content": "be brief"},
                asked,
                {
                    "role": "assistant",
                    "content": "on it",
                    "reasoning_content": "two at once",
                    "tool_calls": both,
                },
                *results,
                {"role": "assistant", "content": "here they are"},
            ],
        ),
        odd(
            "damaged",
            [asked, {"role": "assistant", "content": "", "tool_calls": [call("search", "no {json")]}],
            False,
        ),
        odd(
            "unasked",
            [
                {"role": "assistant", "content": "hello, what can I do?"},
                asked,
                {"role": "assistant", "content": "done"},
            ],
        ),
        odd(
            "made up",
            [
                asked,
                {"role": "assistant", "content": "", "tool_calls": [call("invent", {})]},
                {"role": "tool", "tool_call_id": "c", "content": "no such tool"},
            ],
            False,
            tools=TOOLS,
        ),
        odd(
            "reserved",
            [
                asked,
                {"role": "assistant", "content": "", "tool_calls": [call("respond", {"text": "hi"})]},
                {"role": "tool", "tool_call_id": "c", "content": "said"},
            ],
        ),
    ]
    return found


def build(home: Path) -> Path:
    """The store `store.duckdb` and the dataset `d` in a folder; all episodes but a few are in train."""
    (home / "logs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows()))
    (home / "reward.yaml").write_text(SPEC)
    config = BuildConfig(
        encoder="hashing",
        text_size=4,
        near_threshold=1,
        fractions=(0.98, 0.01, 0.01),
        augment=("paraphrase",),
    )
    with Store(home / "store.duckdb") as store:
        ingest(store, [home / "logs.jsonl"], workers=1)
        build_dataset(store, home / "reward.yaml", name="d", out=home, config=config)
        add_credit(store)
    return home


def add_credit(store: Store, method: str = "counterfactual", split: str = "train") -> None:
    """Made-up credit of a split of `d` from -3 to 1, with every 7th step unknown and every 11th no number; spread up to 0.6, support
    up to 2."""
    store.con.execute(
        """
        INSERT INTO credit
        SELECT dataset, d.hash, split, episode_id, step, $method, 'bc', '{"seed": 0}',
               CASE WHEN n % 11 = 0 THEN 'nan'::DOUBLE ELSE n % 5 - 3 END, n % 4 / 5, n % 3
        FROM (SELECT *, row_number() OVER (ORDER BY episode_id, step) AS n FROM transitions)
        JOIN datasets d USING (dataset) WHERE dataset = 'd' AND split = $split AND n % 7 <> 0
        """,
        {"method": method, "split": split},
    )
