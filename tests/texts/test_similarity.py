"""Golden values of chrF are those of sacrebleu 2.6.0, of ROUGE-L those of rouge_score 0.1.2 (CJK: counted by hand)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.texts import similarity as text_metrics
from logforge.texts.similarity import (
    chrf,
    exact_match,
    longest_common,
    numbers,
    numeric_match,
    rouge_l,
    tokens,
)

PAIRS = [
    ("the cat sat on the mat", "the cat is on the mat", 0.645779, 0.833333),
    ("police kill the gunman", "police killed the gunman", 0.762404, 0.75),
    ("The gunman kill police.", "police killed the gunman", 0.562866, 0.5),
    ("Your flight HAT001 is booked for May 3.", "Flight HAT001 was booked for 3 May.", 0.63062, 0.666667),
    ("testing", "testing one two", 0.467652, 0.5),
    ("abcdefg", "hijklmnop", 0.0, 0.0),
    ("a", "ab", 0.555556, 0.0),
    ("risk assessment must be made", "risk assessment has to be undertaken", 0.484605, 0.545455),
]
TEXT = st.text(st.sampled_from("ab cd今天7.,é\n"), max_size=30) | st.text(max_size=20)


@pytest.mark.parametrize(("said", "meant", "chrf_value", "rouge_value"), PAIRS)
def test_golden_values(said, meant, chrf_value, rouge_value):
    assert chrf(said, meant) == pytest.approx(chrf_value, abs=1e-6)
    assert rouge_l(said, meant) == pytest.approx(rouge_value, abs=1e-6)


def test_cjk_is_compared_by_characters():
    assert rouge_l("今天天气很好", "今天的天气真好") == pytest.approx(2 * 5 / (6 + 7))
    assert chrf("今天天气很好", "今天的天气真好") == pytest.approx(0.180025, abs=1e-6)
    assert tokens("東京タワーへABC行く") == ["東", "京", "タ", "ワ", "ー", "へ", "abc", "行", "く"]
    assert tokens("ＡＢＣ１２") == ["abc12"], "full-width letters are letters"
    assert tokens("서울 날씨") == ["서울", "날씨"], "Korean has blanks"


@pytest.mark.parametrize("metric", [rouge_l, chrf, exact_match])
@given(a=TEXT, b=TEXT)
def test_bounds_and_identity(metric, a, b):
    assert 0 <= metric(a, b) <= 1
    assert metric(a, a) == pytest.approx(1)


@pytest.mark.parametrize("metric", [rouge_l, exact_match])
@given(a=TEXT, b=TEXT)
def test_symmetry(metric, a, b):
    assert metric(a, b) == metric(b, a)


@given(a=st.lists(st.sampled_from("abc"), max_size=12), b=st.lists(st.sampled_from("abc"), max_size=12))
def test_longest_common_subsequence_against_the_table(a, b):
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a, 1):
        for j, y in enumerate(b, 1):
            table[i][j] = table[i - 1][j - 1] + 1 if x == y else max(table[i - 1][j], table[i][j - 1])
    assert longest_common(a, b) == table[-1][-1]


@pytest.mark.parametrize(
    ("said", "meant", "same"),
    [("Yes.", " yes", True), ("YES!", "yes", True), ("ＹＥＳ", "yes", True), ("yes it is", "yes", False)],
)
def test_exact_match(said, meant, same):
    assert exact_match(said, meant) == same


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1,234.5 and −3", [1234.5, -3.0]),
        ("12% of 1e-3", [0.12, 0.001]),
        ("HAT001 at 3.", [1.0, 3.0]),
        ("2-3", [2.0, 3.0]),
        ("none", []),
    ],
)
def test_numbers(text, found):
    assert numbers(text) == found


@pytest.mark.parametrize(
    ("said", "meant", "value"),
    [
        ("The total is $1,234.50.", "1234.5", 1.0),
        ("about 12", "12.5", 0.0),
        ("no idea", "3", 0.0),
        ("3", "three", None),
        ("0.0000002", "0.0000001", 0.0),
        ("0", "0", 1.0),
    ],
)
def test_numeric_match(said, meant, value):
    assert numeric_match(said, meant) == value


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.floats(0, 1))
def test_numeric_match_is_symmetric_and_within_its_tolerance(a, b, tolerance):
    found = text_metrics.numeric_match(repr(a), repr(b), tolerance)
    assert found == text_metrics.numeric_match(repr(b), repr(a), tolerance)
    assert found == (abs(a - b) <= max(tolerance * max(a, b), 1e-12))
