"""Episodes to be split."""

from __future__ import annotations

import polars as pl
from hypothesis import strategies as st


def frame(*rows):
    """Episodes from (episode_id, {column: value})."""
    return pl.DataFrame([{"episode_id": name, "format": "f", **more} for name, more in rows], schema=SCHEMA)


@st.composite
def episode_frames(draw, prefix=""):
    names = [f"{prefix}e{n}" for n in range(draw(st.integers(1, 12)))]
    rows = []
    for name in names:
        row = {key: draw(ids_like(prefix + key)) for key in KEYS[:5]}
        row["format"] = prefix + draw(st.sampled_from("fg"))
        for key in KEYS[5:]:
            row[key] = draw(st.none() | st.sampled_from([*names, f"{prefix}gone"]))
        rows.append({"episode_id": name, **row})
    return pl.DataFrame(rows, schema=SCHEMA)


KEYS = ("task_id", "task", "group_id", "session_id", "user_id", "parent_episode_id", "continues_episode_id")


SCHEMA = dict.fromkeys(("episode_id", "format", *KEYS), pl.String)


def ids_like(prefix):
    return st.none() | st.sampled_from([f"{prefix}{n}" for n in range(4)] + [""])
