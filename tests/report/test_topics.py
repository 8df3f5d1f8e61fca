"""Texts that are alike share a topic, and a topic is told by its own words."""

import numpy as np
import pytest

from logforge.report.topics import topics, words_of
from logforge.texts.encoders import TextVectors, make_encoder

SPOKEN = {
    "password": ("please change my password now", "how do I change my password", "my password must be changed, help", "forgot password, change it"),
    "refund": ("I want a refund for the order", "refund the broken order please", "where is the refund of my order", "order refund is missing"),
    "invoice": ("send me the invoice of march", "the invoice of march is wrong", "need invoice for march again", "march invoice please"),
}  # fmt: skip


def topics_of(texts, seed=0, scale=1.0):
    rows = sorted(set(texts))
    matrix = np.vstack(
        [np.zeros((1, 512), np.float32), make_encoder("hashing").encode(rows) * np.float32(scale)]
    )
    return topics(texts, TextVectors({text: place for place, text in enumerate(rows, 1)}, matrix), seed)


def planted(times=1):
    pairs = [(name, text) for name, spoken in SPOKEN.items() for text in spoken * times]
    return [name for name, _ in pairs], [text for _, text in pairs]


def parts(labels, names):
    return {frozenset(np.flatnonzero(labels == label)) for label in np.unique(labels)}, {
        frozenset(np.flatnonzero(np.array(names) == name)) for name in set(names)
    }


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("times", [1, 4])
def test_planted_topics_are_found_however_often_each_task_was_tried(seed, times):
    names, texts = planted()
    tried = [f"{text} ({number})" for text in texts for number in range(times)]
    found, due = parts(topics_of(tried, seed), [name for name in names for _ in range(times)])
    assert found == due


def test_the_same_seed_gives_the_same_topics_and_lengths_do_not_count():
    _, texts = planted(2)
    assert np.array_equal(topics_of(texts), topics_of(texts))
    assert np.array_equal(topics_of(texts), topics_of(texts, scale=4.0))


def test_few_distinct_texts_are_topics_of_their_own():
    first, second, third = topics_of(["change my password", "refund the order", "change my password"])
    assert first == third != second
    assert topics_of(["change my password"]).tolist() == [0]
    assert len(set(topics_of(["", " ", "", "\n", "\t", "  "]))) == 1


def test_a_topic_is_told_by_its_own_words_first():
    names, texts = planted()
    order = {name: place for place, name in enumerate(SPOKEN)}
    words = words_of(texts, np.array([order[name] for name in names]))
    assert [words[place][0] for place in range(3)] == ["password", "order", "invoice"]
    assert words[1][:2] == ("order", "refund")
    assert words[2][:2] == ("invoice", "march")


def test_numbers_and_short_words_tell_nothing():
    assert words_of(["it is a 42 b7 zebra"], np.array([0])) == {0: ("zebra",)}
