"""Rows of transitions."""

from __future__ import annotations

import polars as pl

from logforge.schemas.tables import TRANSITIONS


def episode(name, rewards, *, truncated=False, split="train", **more):
    rows, value = [], 0.0
    for step in reversed(range(len(rewards))):
        value = rewards[step] + GAMMA * value
        last = step == len(rewards) - 1
        rows.append(
            {
                "episode_id": name,
                "step": step,
                "split": split,
                "state_key": "k",
                "state_key_canonical": "c",
                "action": "search",
                "action_id": 2,
                "action_valid": True,
                "reward": rewards[step],
                "reward_terms": terms(a=rewards[step]),
                "return_to_go": value,
                "return_is_partial": truncated,
                "terminal": last and not truncated,
                "timeout": last and truncated,
                "weight": 1.0,
                "weight_parts": [],
                "argument_numbers": [],
                "success": None,
                "source_kind": "agent_log",
                "propensity_kind": "missing",
                "mask": [True, False, True, False],
                "mask_kind": "logged",
                "locator": f"{name}.jsonl:{step}",
                **more,
            }
        )
    return rows[::-1]


def frame(data):
    return pl.DataFrame(data, schema=SCHEMA)


GAMMA = 0.9


SCHEMA = {
    "VARCHAR": pl.String,
    "INTEGER": pl.Int32,
    "BIGINT": pl.Int64,
    "DOUBLE": pl.Float64,
    "BOOLEAN": pl.Boolean,
    "BOOLEAN[]": pl.List(pl.Boolean),
    "MAP(VARCHAR, DOUBLE)": pl.List(pl.Struct({"key": pl.String, "value": pl.Float64})),
}


SCHEMA = {column.name: SCHEMA[column.type] for column in TRANSITIONS.columns if column.name != "dataset"}


def terms(**values):
    return [{"key": key, "value": value} for key, value in values.items()]
