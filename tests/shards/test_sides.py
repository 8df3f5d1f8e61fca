"""The arrays beside the actions: what must hold in them, and that they are what the rows say."""

import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from logforge.schemas.episode import Step
from logforge.schemas.errors import CheckFailed
from logforge.schemas.manifest import ArgumentTemplate, SideNames
from logforge.shards.array_rules import check_arrays
from logforge.shards.reader import load_shards, write_dataset
from logforge.shards.sides import proposed, side_arrays
from support.made_arrays import DIM, VOCABULARY, altered, make, manifest

NAMES = SideNames(
    (ArgumentTemplate("search", "*"), ArgumentTemplate("refund", "*")), ("search.limit", "refund.amount"), ("a", "b")
)  # fmt: skip
SEARCH, REFUND = VOCABULARY.id("search"), VOCABULARY.id("refund")


@pytest.fixture
def arrays():
    """A split with templates, numbers and policies."""
    made = make([(3, True), (1, False), (2, True)])
    actions = np.array([SEARCH, REFUND, 0, SEARCH, SEARCH, 1], np.int32)
    numbers = np.zeros((6, 2), np.float32)
    numbers[[0, 3], 0] = 5, 7
    return replace(
        made,
        actions=actions,
        proposed_actions=np.array([SEARCH, SEARCH, 0, SEARCH, VOCABULARY.invalid, 1], np.int32),
        argument_templates=np.array([0, 1, -1, 0, 0, -1], np.int32),
        argument_numbers=numbers,
        argument_numbers_known=numbers != 0,
        behaviour_policies=np.array([0, 0, 1, 1, -1, -1], np.int32),
    )


def test_sound_arrays_pass_and_travel(tmp_path, arrays):
    check_arrays(arrays, VOCABULARY, DIM, names=NAMES)
    told = manifest(
        argument_templates=NAMES.templates, argument_numbers=NAMES.numbers, behaviour_policies=NAMES.policies
    )
    write_dataset(tmp_path / "made", {"train": arrays}, told)
    shard = load_shards(tmp_path / "made", "train")
    shard.verify()
    batch = shard.batch(np.array([1, 3]))
    assert batch.argument_templates.tolist() == [1, 0]
    assert batch.proposed_actions.tolist() == [SEARCH, SEARCH]
    assert batch.argument_numbers.tolist() == [[0, 0], [7, 0]]
    assert batch.argument_numbers_known.tolist() == [[False, False], [True, False]]


@pytest.mark.parametrize(
    ("name", "where", "value", "said"),
    [
        ("argument_templates", 0, 1, r"a template of another action: 1 rows, first 0"),
        ("argument_templates", 2, 0, r"a template of another action"),
        ("argument_templates", 0, 2, r"not from -1 to 1"),
        ("argument_templates", 0, -2, r"not from -1 to 1"),
        ("proposed_actions", 0, VOCABULARY.size, "not from 0 to 5"),
        ("proposed_actions", 0, -1, "not from 0 to 5"),
        ("behaviour_policies", 5, 2, "not from -1 to 1"),
        ("propensity_kinds", 0, 4, "not from 0 to 3"),
        ("propensity_kinds", 0, 3, "a propensity without a kind"),
        ("propensity_kinds", 1, 2, "a kind without one"),
        ("argument_numbers", (1, 1), 3.0, "unknown, yet not 0"),
        ("argument_numbers", (0, 0), np.inf, "not finite"),
    ],
)
def test_each_broken_rule_is_named(arrays, name, where, value, said):
    with pytest.raises(CheckFailed) as caught:
        check_arrays(altered(arrays, name, where, value), VOCABULARY, DIM, names=NAMES)
    assert re.search(rf"{said}.*\$\.{name}", "\n".join(map(str, caught.value.failures)))


def test_columns_that_no_manifest_names_are_refused(arrays):
    with pytest.raises(CheckFailed, match="argument_numbers"):
        check_arrays(arrays, VOCABULARY, DIM, names=NAMES._replace(numbers=("search.limit",)))


def test_arrays_are_what_the_rows_say():
    rows = pl.DataFrame(
        {
            "action_id": [SEARCH, REFUND, 0],
            "proposed_action": ["refund", None, "made_up"],
            "argument_template": [0, None, None],
            "argument_numbers": [[{"key": "search.limit", "value": 2.5}], [], []],
            "policy_id": ["b", None, "a"],
            "propensity_kind": ["logged", "missing", "estimated"],
        },
        schema_overrides={"argument_numbers": pl.List(pl.Struct({"key": pl.String, "value": pl.Float64}))},
    )
    found = side_arrays(rows, VOCABULARY, NAMES)
    assert found["proposed_actions"].tolist() == [REFUND, REFUND, VOCABULARY.invalid]
    assert found["argument_templates"].tolist() == [0, -1, -1]
    assert found["argument_numbers"].tolist() == [[2.5, 0], [0, 0], [0, 0]]
    assert found["argument_numbers_known"].tolist() == [[True, False], [False, False], [False, False]]
    assert found["behaviour_policies"].tolist() == [1, -1, 0]
    assert found["propensity_kinds"].tolist() == [0, 3, 2]


def test_a_mended_name_is_no_other_proposal():
    step = {"step": 0, "position": 0, "kind": "tool", "action": "search", "locator": ""}
    assert proposed(Step(**step, proposed_action="refund")) == "refund"
    assert proposed(Step(**step, proposed_action="search")) is None
    assert proposed(Step(**step, proposed_action="serch", repair="name_near")) is None
    assert proposed(Step(**step)) is None
