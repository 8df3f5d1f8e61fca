"""The next item is made while one is used; order, errors and leaving early are as without."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.ingestion.pace import ahead


@given(st.lists(st.integers() | st.none()))
def test_the_items_come_in_their_order(items):
    assert list(ahead(items)) == items


def test_one_item_is_made_while_another_is_used_and_no_more():
    made = [threading.Event() for _ in range(4)]

    def making():
        for number, event in enumerate(made):
            event.set()
            yield number

    items = ahead(making())
    assert next(items) == 0
    assert made[1].wait(10)
    assert not made[2].wait(0.05)
    items.close()
    assert not made[3].is_set()


def test_what_raises_is_raised_where_the_item_would_be_used():
    def making():
        yield 1
        raise KeyError("two")

    items = ahead(making())
    assert next(items) == 1
    with pytest.raises(KeyError, match="two"):
        next(items)
