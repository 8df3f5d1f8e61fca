"""What makes a dataset's transitions valid: the rules by name, each with its meaning, and the values that are allowed.

The checks themselves are in logforge/dataset/quality/transitions.py; docs and reports take names and meanings from here.
"""

from __future__ import annotations

from typing import Literal, get_args

from logforge.schemas.episode import PropensityKind, SourceKind

Split = Literal["train", "validation", "test", "held_out"]
MaskKind = Literal["logged", "inferred"]

PROPENSITY_KINDS: tuple[str, ...] = get_args(PropensityKind)
"""Where a propensity is from; a shard holds a kind as its place in here."""

SPLIT_NAMES: tuple[str, ...] = get_args(Split)
"""Every split. A dataset has the last one only where a build was told what to hold out."""
DRAWN_SPLITS: tuple[str, ...] = SPLIT_NAMES[:3]
"""The splits that groups fall into by chance or time, in the order of the fractions."""
HELD_OUT = SPLIT_NAMES[3]
"""The split of a task family that nothing is learnt from and nothing fitted on: it tells what a policy does out of distribution."""

ALLOWED: dict[str, tuple[str, ...]] = {
    "split": SPLIT_NAMES,
    "source_kind": get_args(SourceKind),
    "propensity_kind": PROPENSITY_KINDS,
    "mask_kind": get_args(MaskKind),
}
"""Columns that hold one of a few words."""

NULLABLE: frozenset[str] = frozenset(
    {
        "success",
        "policy_id",
        "propensity",
        "proposed_action",
        "argument_template",
        "parent_id",
        "augmenter",
        "augment_seed",
    }
)
"""Columns that may be null: the log need not say it, or the row is a logged one."""

RULES: dict[str, str] = {
    "column": "every column of the table is there",
    "type": "every column has the table's type",
    "null": "only columns that may be unknown are null",
    "finite": "no number is NaN or infinite",
    "range": "steps and weights are not negative, action ids lie below the number of actions",
    "word": "a column of few words holds one of them",
    "steps_contiguous": "an episode's steps count from 0 without gaps or repeats",
    "one_end": "an episode ends exactly once, with its last step",
    "terminal_xor_timeout": "a step is not terminal and timeout at once",
    "return_partial": "returns are partial exactly in episodes that end in a timeout",
    "return_recursion": "return_to_go = reward + gamma · the next step's return_to_go, and the reward on the last step",
    "reward_sum": "the reward is exactly the sum of its terms, added in the order of their names",
    "weight_parts": "a weight is exactly the product of its parts, by their names' order; only train rows have parts",
    "invalid_action": "an action is marked invalid exactly when its id is the vocabulary's invalid id",
    "action_in_mask": "the mask covers the vocabulary, allows each valid action taken and never the invalid id",
    "propensity": "a propensity lies in (0, 1], and is null exactly when its kind is missing",
    "split_constant": "an episode lies in one split",
    "augmented_in_train": "augmented rows lie in train alone",
    "augmented_lineage": "parent, augmenter and seed are all there or all absent; only synthetic rows have them",
    "parent_known": "the parent of an augmented row is a row of the same split",
    "arrays": "the arrays of a split hold what its rows say, in the same order",
    "next_state": "what was observed after a step, and its mask, is what the next step starts from",
}
"""Every rule of a transition, by name, and what it demands."""
