"""Transitions for the tests of conflicts, and what was said with their decisions."""

from __future__ import annotations

import polars as pl

from logforge.dataset.conflicts.rows import Decisions

SCHEMA = {
    "episode_id": pl.String,
    "step": pl.Int32,
    "state_key": pl.String,
    "state_key_canonical": pl.String,
    "action": pl.String,
    "return_to_go": pl.Float64,
    "return_is_partial": pl.Boolean,
    "success": pl.Boolean,
    "parent_id": pl.String,
    "source_kind": pl.String,
    "split": pl.String,
    "weight": pl.Float64,
    "locator": pl.String,
}


def row(
    episode, key, action, value, success=None, *, canonical=None, step=0, partial=False, parent=None,
    kind="agent_log", split="train",
):  # fmt: skip
    """One transition, in the order of SCHEMA."""
    place = f"{episode}.jsonl:{step}"
    return (
        episode, step, key, canonical or f"c-{key}", action, value, partial, success, parent, kind, split, 1.0, place,
    )  # fmt: skip


def frame(*rows):
    """The transitions as a frame."""
    return pl.DataFrame(list(rows), schema=SCHEMA, orient="row")


def said(transitions, words=None):
    """What `decisions_of` gives; decisions without words are each like no other."""
    return named(transitions, words or {}, {})


def named(transitions, words, scores):
    """The same with the scores of some episodes."""
    steps = transitions.select("episode_id", "step").unique().sort("episode_id", "step").rows()
    rows = [(e, s, words.get((e, s), _own(e, s)), scores.get(e)) for e, s in steps]
    schema = {"episode_id": pl.String, "step": pl.Int32, "said": pl.String, "score": pl.Float64}
    return Decisions.of(pl.DataFrame(rows, schema=schema, orient="row"))


def _own(episode, step):
    """Words without digits, which masking would make equal."""
    return "".join(chr(ord("q") + int(c)) if c.isdigit() else c for c in f"{episode} says {step}")
