"""Arguments as a few numbers, answers as facts: equal for equal kinds of calls, told apart by values that matter, safe for any text."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.dataset.states.json_facts import ARGUMENT_COLUMNS, MOST_FACTS, argument_digest, fact_columns

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def test_no_arguments_are_zeros() -> None:
    assert not argument_digest("{}").any()


def test_ids_are_masked_and_words_are_not() -> None:
    one, two = argument_digest('{"order":"W7"}'), argument_digest('{"order":"W8"}')
    np.testing.assert_array_equal(one, two)
    assert (argument_digest('{"mode":"fast"}') != argument_digest('{"mode":"slow"}')).any()
    assert (argument_digest('{"a":{"b":true}}') != argument_digest('{"a":{"b":false}}')).any()


def test_a_number_counts_by_its_size_in_one_column() -> None:
    small, large, below = (argument_digest(json.dumps({"n": n})) for n in (1, 1000, -1000))
    assert np.flatnonzero(small).tolist() == np.flatnonzero(large).tolist()
    assert np.count_nonzero(large) == 1
    assert np.abs(large).max() == pytest.approx(1)
    assert np.abs(small).max() == pytest.approx(math.log(2) / math.log(1001))
    np.testing.assert_array_equal(below, -large)


@given(JSON)
@settings(max_examples=200, deadline=None)
def test_any_arguments_have_a_finite_digest_whatever_the_order_of_keys(value: object) -> None:
    digest = argument_digest(json.dumps(value))
    assert digest.shape == (ARGUMENT_COLUMNS,)
    assert digest.dtype == np.float32
    assert np.isfinite(digest).all()
    np.testing.assert_allclose(argument_digest(json.dumps(value, sort_keys=True)), digest, atol=1e-6)


@pytest.mark.parametrize("text", ["", "not json", "[" * 5000, "1e999", '"\\ud800"', "{" * 3])
def test_what_is_no_json_counts_as_a_text(text: str) -> None:
    assert np.isfinite(argument_digest(text)).all()


def test_a_digest_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        argument_digest('{"n":1}')[0] = 9


def test_facts_of_json_are_its_leaves_and_of_a_text_the_text() -> None:
    order = fact_columns("get", '{"status": "sent", "id": "W7", "lines": [{"n": 1}, {"n": 2}]}', 10_000)
    assert len(order) == 3
    assert fact_columns("get", '{"lines": [{"n": 5}], "id": "W8", "status": "sent"}', 10_000) == order
    assert set(fact_columns("get", '{"status": "sent"}', 10_000)) < set(order)
    assert len(fact_columns("get", "Disk 41 % used", 10_000)) == 1
    assert fact_columns("get", "Disk 41 % used", 10_000) == fact_columns("get", "Disk 97 % used", 10_000)
    assert fact_columns("get", "sent", 10_000) != fact_columns("put", "sent", 10_000)


def test_a_long_answer_counts_by_its_first_leaves() -> None:
    rows = json.dumps([{f"key{number}": "x"} for number in range(1000)])
    assert 0 < len(fact_columns("get", rows, 10_000)) <= MOST_FACTS
    assert max(fact_columns("get", rows, 7)) < 7


@given(JSON, st.text(max_size=20))
@settings(max_examples=100, deadline=None)
def test_any_text_has_facts(value: object, text: str) -> None:
    for said in (json.dumps(value), text):
        assert all(0 <= column < 5 for column in fact_columns("x", said, 5))
