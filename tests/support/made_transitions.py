"""Rows of transitions."""

from __future__ import annotations

import polars as pl

from logforge.core.frames import POLARS_TYPES
from logforge.schemas.tables import TRANSITIONS

GAMMA = 0.9
SCHEMA = {
    column.name: POLARS_TYPES[column.type] for column in TRANSITIONS.columns if column.name != "dataset"
}


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


def terms(**values):
    return [{"key": key, "value": value} for key, value in values.items()]
