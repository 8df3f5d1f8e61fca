import math

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.dataset.quality.transitions import FAILURES, Allowance, validate
from logforge.schemas.errors import UsageError
from logforge.schemas.tables import TRANSITIONS
from logforge.schemas.transition import RULES
from support.made_transitions import GAMMA, episode, frame, terms

SIZE = 4
INVALID = 3


def rows():
    """Three logged episodes and an augmented one, all valid."""
    return [
        *episode("a", [0.1, 0.2, 1.0]),
        *episode("b", [0.5, -1.0], truncated=True, split="test"),
        *episode("c", [2.0], propensity=0.25, propensity_kind="logged", success=True),
        *episode(
            "d", [0.3], parent_id="a/1", augmenter="paraphrase", augment_seed=0, source_kind="synthetic"
        ),
    ]


def check(data, invalid=INVALID):
    found = validate(frame(data) if isinstance(data, list) else data, GAMMA, SIZE, invalid)
    assert found.schema == FAILURES
    assert all(reason == RULES[rule] for rule, reason in found.select("rule", "reason").rows())
    return found


def test_a_valid_frame_has_no_failures():
    assert check(rows()).is_empty()
    assert check([]).is_empty()
    assert check(rows(), invalid=None).is_empty()


def test_rows_read_from_the_store_are_checked_alike():
    with duckdb.connect() as con:
        columns = [column for column in TRANSITIONS.columns if column.name != "dataset"]
        con.execute(f"CREATE TABLE transitions ({', '.join(f'{c.name} {c.type}' for c in columns)})")
        con.register("rows", frame(rows()).to_arrow())
        con.execute(
            "INSERT INTO transitions BY NAME SELECT * REPLACE (map_from_entries(reward_terms) AS reward_terms, "
            "map_from_entries(weight_parts) AS weight_parts, map_from_entries(argument_numbers) AS argument_numbers) FROM rows"
        )
        assert check(con.sql("SELECT * FROM transitions").pl()).is_empty()
        con.execute("UPDATE transitions SET reward = reward + 1 WHERE episode_id = 'c'")
        assert set(check(con.sql("SELECT * FROM transitions").pl())["rule"]) == {
            "reward_sum",
            "return_recursion",
        }


def test_the_order_of_rows_does_not_matter():
    assert check(rows()[::-1]).is_empty()


# the row of rows() that is changed, what to, the rule that breaks and the row that is named
BROKEN = [
    ("null", 1, {"state_key": None}, ("a", 1)),
    ("null", 1, {"mask": None}, ("a", 1)),
    ("null", 1, {"reward_terms": None}, ("a", 1)),
    ("finite", 5, {"propensity": math.nan}, ("c", 0)),
    ("finite", 5, {"weight": math.inf}, ("c", 0)),
    ("finite", 5, {"weight": math.nan}, ("c", 0)),
    ("finite", 5, {"reward_terms": terms(a=2.0, b=math.nan)}, ("c", 0)),
    ("finite", 5, {"reward_terms": terms(a=2.0, b=None)}, ("c", 0)),
    ("range", 0, {"weight": -1.0}, ("a", 0)),
    ("range", 0, {"action_id": SIZE}, ("a", 0)),
    ("range", 0, {"action_id": -1}, ("a", 0)),
    ("word", 5, {"split": "holdout"}, ("c", 0)),
    ("word", 0, {"source_kind": "robot"}, ("a", 0)),
    ("word", 0, {"mask_kind": "guessed"}, ("a", 0)),
    ("steps_contiguous", 2, {"step": 3}, ("a", 3)),
    ("steps_contiguous", 5, {"step": 1}, ("c", 1)),
    ("one_end", 2, {"terminal": False}, ("a", 2)),
    ("one_end", 1, {"terminal": True}, ("a", 1)),
    ("terminal_xor_timeout", 4, {"terminal": True}, ("b", 1)),
    ("return_partial", 0, {"return_is_partial": True}, ("a", 0)),
    ("return_partial", 3, {"return_is_partial": False}, ("b", 0)),
    ("return_recursion", 0, {"return_to_go": 1.0901}, ("a", 0)),
    ("return_recursion", 5, {"return_to_go": 5.0}, ("c", 0)),
    ("reward_sum", 1, {"reward_terms": terms(a=0.1, b=0.2)}, ("a", 1)),
    ("reward_sum", 1, {"reward_terms": []}, ("a", 1)),
    ("null", 1, {"weight_parts": None}, ("a", 1)),
    ("finite", 5, {"weight_parts": terms(recency=math.inf)}, ("c", 0)),
    ("weight_parts", 0, {"weight": 0.5}, ("a", 0)),
    ("weight_parts", 1, {"weight_parts": terms(off_task=0.5)}, ("a", 1)),
    ("weight_parts", 2, {"weight": 0.3, "weight_parts": terms(c=0.3, b=0.5, a=2.0)[:2]}, ("a", 2)),
    ("weight_parts", 3, {"weight": 0.5, "weight_parts": terms(recency=0.5)}, ("b", 0)),
    ("invalid_action", 1, {"action_valid": False}, ("a", 1)),
    ("invalid_action", 1, {"action_id": INVALID}, ("a", 1)),
    ("action_in_mask", 1, {"action_id": 1}, ("a", 1)),
    ("action_in_mask", 1, {"mask": [True, True, True]}, ("a", 1)),
    ("action_in_mask", 1, {"mask": [True, None, True, False]}, ("a", 1)),
    ("action_in_mask", 1, {"mask": [True, True, True, True]}, ("a", 1)),
    ("propensity", 5, {"propensity": 0.0}, ("c", 0)),
    ("propensity", 5, {"propensity": 1.01}, ("c", 0)),
    ("propensity", 5, {"propensity": None}, ("c", 0)),
    ("propensity", 0, {"propensity": 0.5}, ("a", 0)),
    ("split_constant", 4, {"split": "train"}, ("b", 1)),
    ("augmented_in_train", 6, {"split": "test"}, ("d", 0)),
    ("augmented_lineage", 6, {"augmenter": None}, ("d", 0)),
    ("augmented_lineage", 6, {"augment_seed": None}, ("d", 0)),
    ("augmented_lineage", 0, {"augmenter": "paraphrase"}, ("a", 0)),
    ("augmented_lineage", 6, {"source_kind": "agent_log"}, ("d", 0)),
    ("parent_known", 6, {"parent_id": "a/7"}, ("d", 0)),
    ("parent_known", 6, {"parent_id": "b/0"}, ("d", 0)),
]


@pytest.mark.parametrize(("rule", "index", "change", "place"), BROKEN)
def test_each_broken_row_is_named_by_its_rule(rule, index, change, place):
    data = rows()
    data[index] |= change
    found = check(data)
    named = found.filter(pl.col("rule") == rule).select("episode_id", "step", "locator").rows()
    assert named == [(*place, data[index]["locator"])]


@pytest.mark.parametrize(
    ("rule", "index", "change"),
    [
        (rule, index, change)
        for rule, index, change, _ in BROKEN
        if rule not in ("word", "finite", "null", "range")
    ],
)
def test_a_broken_rule_breaks_few_others(rule, index, change):
    data = rows()
    data[index] |= change
    assert set(check(data)["rule"]) <= {
        "steps_contiguous": {rule, "parent_known"},
        "one_end": {rule},
        "return_recursion": {rule},
        "invalid_action": {rule, "action_in_mask"},
        "augmented_in_train": {rule, "parent_known"},
        "augmented_lineage": {rule},
    }.get(rule, {rule})


def test_every_rule_has_a_broken_fixture():
    of_arrays = {"arrays", "next_state"}  # tests/dataset/quality/test_arrays.py
    assert {rule for rule, *_ in BROKEN} | {"column", "type"} | of_arrays == set(RULES)


def test_all_failures_come_in_one_go():
    data = rows()
    for index, change in (
        (0, {"weight": -1.0}),
        (1, {"action_id": 1}),
        (5, {"propensity": 2.0}),
        (6, {"split": "test"}),
    ):
        data[index] |= change
    assert set(check(data)["rule"]) == {
        "range",
        "action_in_mask",
        "propensity",
        "augmented_in_train",
        "parent_known",
        "weight_parts",
    }


def test_missing_columns_and_wrong_types_are_named():
    wrong = frame(rows()).drop("mask", "weight").with_columns(pl.col("step").cast(pl.Int64))
    found = check(wrong)
    assert set(found.select("rule", "detail").rows()) == {
        ("column", "column is mask"),
        ("column", "column is weight"),
        ("type", "step is Int64"),
    }


def test_further_columns_are_no_failure():
    assert check(frame(rows()).with_columns(more=1)).is_empty()


def test_an_invalid_action_with_its_id_is_fine():
    data = rows()
    data[0] |= {"action": "made_up", "action_valid": False, "action_id": INVALID}
    assert check(data).is_empty()


def test_a_reward_is_the_sum_in_the_order_of_names_exactly():
    values = {"b": 0.2, "a": 0.1, "c": 0.3}
    by_name, as_given = (0.1 + 0.2) + 0.3, (0.2 + 0.3) + 0.1
    assert by_name != as_given
    for total, broken in ((by_name, []), (as_given, ["reward_sum"])):
        data = episode("a", [total])
        data[0] |= {"reward_terms": terms(**values)}
        assert check(data)["rule"].to_list() == broken


def test_a_weight_is_the_product_in_the_order_of_names_exactly():
    values = {"b": 0.7, "a": 0.1, "c": 0.3}
    by_name, as_given = (0.1 * 0.7) * 0.3, (0.7 * 0.3) * 0.1
    assert by_name != as_given
    for product, broken in ((by_name, []), (as_given, ["weight_parts"])):
        data = episode("a", [1.0])
        data[0] |= {"weight": product, "weight_parts": terms(**values)}
        assert check(data)["rule"].to_list() == broken


def test_a_long_gap_is_one_failure_an_episode():
    data = episode("a", [0.0] * 50)
    for row in data[10:]:
        row["step"] += 5
    assert check(data).select("rule", "step", "detail").rows() == [
        ("steps_contiguous", 15, "its row 10 is step 15")
    ]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6), st.booleans()),
        min_size=1,
        max_size=5,
    )
)
def test_what_is_built_by_the_rules_passes(drawn):
    data = [row for n, (rewards, cut) in enumerate(drawn) for row in episode(f"e{n}", rewards, truncated=cut)]
    assert check(data).is_empty()


def test_a_tiny_relative_error_passes_and_a_larger_one_does_not():
    for factor, rules in ((1 + 1e-8, []), (1 + 1e-5, ["return_recursion"])):
        data = episode("a", [1e6])
        data[0]["return_to_go"] *= factor
        assert check(data)["rule"].to_list() == rules


@pytest.mark.parametrize(
    ("text", "broken", "total", "allowed"),
    [
        ("0", 0, 10, True),
        ("0", 1, 10, False),
        ("3", 3, 3, True),
        ("3", 4, 1000, False),
        ("10%", 1, 10, True),
        ("0.1", 2, 10, False),
        ("1.0", 10, 10, True),
    ],
)
def test_an_allowance_is_a_number_or_a_share(text, broken, total, allowed):
    assert Allowance.parse(text).allows(broken, total) is allowed


@pytest.mark.parametrize("text", ["-1", "1.5", "120%", "some", "", "nan"])
def test_anything_else_is_no_allowance(text):
    with pytest.raises(UsageError, match="neither a number of episodes nor a share"):
        Allowance.parse(text)
