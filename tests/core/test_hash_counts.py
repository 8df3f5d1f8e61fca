"""Counts of many keys are those of a plain counter, however they are merged."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from logforge.core import hash_counts as tally
from logforge.core.hash_counts import Tally

# numpy's bytes lose zeros at their ends: digests that end so must count as themselves
DIGESTS = st.sampled_from([bytes([n]) * 15 + bytes([m]) for n in range(3) for m in (0, 1)])


@given(st.lists(st.lists(DIGESTS)), st.integers(1, 4))
def test_counts_are_those_of_a_counter(pieces, pending):
    before, tally._PENDING = tally._PENDING, pending
    try:
        counted, plain = Tally("S16"), Counter()
        for piece in pieces:
            counted.add(piece)
            plain.update(piece)
            unknown = [bytes([9]) * 16, *plain]
            assert counted.lacks(unknown) == unknown[:1]
        order = sorted(plain)
        keys = counted.keys()
        assert [keys[i : i + 1].tobytes() for i in range(len(keys))] == order
        asked = np.array([*order, bytes([9]) * 16], "S16")
        assert counted.of(asked).tolist() == [*(plain[key] for key in order), 0]
        assert len(counted.above(1)) == sum(count > 1 for count in plain.values())
    finally:
        tally._PENDING = before


def test_nothing_seen_is_nothing_known():
    assert Tally(np.uint64).of(np.array([1, 2], np.uint64)).tolist() == [0, 0]
    assert Tally("S16").lacks([]) == []
