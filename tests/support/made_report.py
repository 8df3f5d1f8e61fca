"""Stores with planted episodes, for the sections of the quality report: rows as a build would have written them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np

from logforge.core.frames import rows_table
from logforge.report.page.context import Context
from logforge.schemas.tables import TABLES
from logforge.shards.sample import Sample
from logforge.store.store import Store

STAMP = datetime(2026, 1, 1)


def episode(
    name: str, *actions: Any, success: bool | None = True, split: str = "train", **more: Any
) -> dict[str, Any]:
    """An episode of tool calls: names, or dicts with columns of `steps` or `transitions` (`action` among them)."""
    steps = [step if isinstance(step, dict) else {"action": step} for step in actions]
    return {"episode_id": name, "success": success, "split": split, "steps": steps, **more}


def plant(store: Store, *episodes: dict[str, Any], dataset: str = "d") -> Context:
    """Put episodes into the store and into a dataset, and give the context that sections measure."""
    rows: dict[str, list[dict[str, Any]]] = {"episodes": [], "steps": [], "transitions": [], "splits": []}
    for item in episodes:
        own = {
            "format": "f",
            "source_id": "s",
            "ending": "terminal",
            "ending_reason": "done",
            "source_kind": "agent_log",
        } | item
        own = {"locator": f"{own['episode_id']}:1"} | own
        rows["episodes"].append(own)
        rows["steps"] += [_step(item, number, step) for number, step in enumerate(item["steps"])]
        if item.get("built", True):
            rows["transitions"] += [
                _transition(dataset, own, number, step) for number, step in enumerate(item["steps"])
            ]
            group = item.get("task_id") or item["episode_id"]
            rows["splits"].append({"dataset": dataset, "group_key": group, "reason": "alone"} | own)
    for table, found in rows.items():
        _insert(store, table, *found)
    store.con.execute("DELETE FROM datasets WHERE dataset = ?", [dataset])
    insert(
        store,
        "datasets",
        dataset=dataset,
        hash="h",
        spec_hash="s",
        config="{}",
        created_at=STAMP,
        path="none",
    )
    return Context(store, dataset)


def insert(store: Store, table: str, **row: Any) -> None:
    """One row of a table."""
    _insert(store, table, row)


def _insert(store: Store, table: str, *rows: dict[str, Any]) -> None:
    names = {column.name for column in TABLES[table].columns}
    known = [{key: value for key, value in row.items() if key in names} for row in rows]
    store.insert(table, rows_table(TABLES[table], known))


def _step(item: dict[str, Any], number: int, step: dict[str, Any]) -> dict[str, Any]:
    usual = {
        "episode_id": item["episode_id"], "step": number, "position": 2 * number + 1, "kind": "tool", "action_valid": True,
        "arguments": f'{{"n": {number}}}', "arguments_status": "ok", "result": f"result {item['episode_id']} {number}", "result_status": "ok",
    }  # fmt: skip
    return usual | step


def _transition(dataset: str, item: dict[str, Any], number: int, step: dict[str, Any]) -> dict[str, Any]:
    last = number == len(item["steps"]) - 1
    cut = item.get("ending") == "truncated"
    value = item.get("value", 1.0 if item["success"] else 0.0)
    usual = {
        "dataset": dataset, "episode_id": item["episode_id"], "step": number, "split": item["split"],
        "state_key": f"{item['episode_id']}/{number}", "state_key_canonical": f"{item['episode_id']}/{number}", "action_id": 0,
        "action_valid": True, "reward": 0.0, "reward_terms": [], "return_to_go": value, "return_is_partial": cut,
        "terminal": last and not cut, "timeout": last and cut, "weight": 1.0, "success": item["success"],
        "source_kind": item["source_kind"], "policy_id": item.get("policy_id"), "propensity_kind": "missing", "mask": [True, True],
        "mask_kind": "logged", "locator": f"{item['episode_id']}:{number}",
    }  # fmt: skip
    return usual | item.get("transition", {}) | step


def sample(observations: Any, actions: Any, success: Any, length: int = 1, returns: Any = None) -> Sample:
    """Episodes of `length` decisions each, every one its own group."""
    seen = np.asarray(observations, np.float32)
    count = len(seen) // length
    outcome = np.asarray(success, np.int8)
    owner = np.repeat(np.arange(count), length)
    return Sample(
        observations=seen,
        actions=np.asarray(actions),
        returns=outcome[owner].astype(float) if returns is None else np.asarray(returns, float),
        steps=np.tile(np.arange(length), count),
        episode=owner,
        success=outcome,
        truncated=np.zeros(count, bool),
        groups=np.arange(count),
        population=len(seen),
    )


def given(context: Context, **parts: Any) -> Context:
    """The context with parts that would come from the dataset's folder."""
    context.__dict__.update({"missing": "", **parts})
    return context
