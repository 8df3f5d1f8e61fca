"""Scorers that learn from the train split: perplexity and satisfaction."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.frames import tables_of
from logforge.perplexity import NgramModel, Perplexity
from logforge.satisfaction import Satisfaction
from logforge.scorer import Example, Resources
from logforge.scoring import ready_scorers
from logforge.text_metrics import tokens
from made_scores import dialogue, results, scored, spec_of

CORPUS = [f"your flight number {n} is booked for today" for n in range(30)]


def examples(texts, successes=None):
    return tuple(
        Example(text, success, None, f"e{n}")
        for n, (text, success) in enumerate(zip(texts, successes or [None] * len(texts), strict=True))
    )


def ready(scorer, given_examples):
    return scorer.ready(Resources(None, given_examples))


def values(made, texts):
    return [score.value for _, score in sorted(made.score([(text,) for text in texts]))]


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_probabilities_sum_to_1(order):
    model = NgramModel(order, ["a b", "a c c", "b a"])
    for before in ("", "a", "a c", "z"):
        # The entropy of "before w" less that of what all w share is -log p(w | before) + -log p(end | ...): take p(w) alone.
        total = sum(_chance(model, before, word) for word in ("a", "b", "c", "</s>", "never seen"))
        assert total == pytest.approx(1)


def _chance(model, before, word):
    """The model's probability of a word after others, by its definition (Witten and Bell 1991)."""
    words = ["<s>"] * (model.order - 1) + tokens(before)
    chance = 1 / (len([g for g in model.counts if len(g) == 1]) + 1)
    for length in range(model.order):
        context = tuple(words[len(words) - length :])
        follow = {gram[-1]: n for gram, n in model.counts.items() if gram[:-1] == context}
        if follow:
            chance = (follow.get(word, 0) + len(follow) * chance) / (sum(follow.values()) + len(follow))
    return chance


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=6))
def test_the_entropy_is_that_of_the_definition(words):
    model = NgramModel(3, ["a b", "a c c", "b a", "c b a b"])
    text = " ".join([*words, "x"])
    chances = [
        _chance(model, " ".join(text.split()[:n]), word) for n, word in enumerate([*text.split(), "</s>"])
    ]
    assert model.cross_entropy(text) == pytest.approx(-sum(map(math.log, chances)) / len(chances))


def test_a_text_it_learnt_from_is_scored_without_itself():
    learnt = NgramModel(3, CORPUS)
    without = NgramModel(3, CORPUS[1:])
    assert learnt.cross_entropy(CORPUS[0]) == pytest.approx(without.cross_entropy(CORPUS[0]))


def test_fluent_texts_score_higher_than_garbled_ones():
    made = ready(Perplexity(), examples(CORPUS))
    fluent, garbled, foreign = values(
        made,
        ["your flight number 99 is booked for today", "today for booked is 99 number flight your", "xyz"],
    )
    assert 1 > fluent > garbled > 0
    assert garbled > 0
    assert fluent > foreign > 0


def test_perplexity_is_the_same_for_any_order_and_repetition_of_its_texts():
    one, other = (ready(Perplexity(), examples(texts)) for texts in (CORPUS, [*reversed(CORPUS), *CORPUS]))
    assert one.version == other.version
    assert values(one, ["your flight"]) == values(other, ["your flight"])
    assert ready(Perplexity(), examples([*CORPUS, "more"])).version != one.version
    assert ready(Perplexity(), examples(CORPUS[:19])).unready == "19 texts to learn from, 20 needed"


GOOD = ["thanks, that is great", "perfect, thank you", "wonderful help, thanks a lot", "great, this works"]
BAD = ["no, that is wrong", "this is useless", "wrong again, I want a person", "no, useless answer"]


def rated(count):
    texts = [f"{(GOOD if n % 2 else BAD)[n // 2 % 4]} {n}" for n in range(count)]
    return texts, [n % 2 == 1 for n in range(count)]


def test_satisfaction_tells_thanks_from_complaints():
    made = ready(Satisfaction(), examples(*rated(40)))
    happy, angry = values(made, ["thanks, great", "no, this is wrong and useless"])
    assert happy > 0.6
    assert angry < 0.4


def test_a_rated_text_is_scored_by_a_model_that_did_not_see_it():
    texts, successes = rated(40)
    secret = "zanzibar"
    made = ready(Satisfaction(), examples([*texts, secret], [*successes, True]))
    unseen = ready(Satisfaction(), examples(texts, successes))
    assert values(made, [secret])[0] == pytest.approx(values(unseen, [secret])[0], abs=0.15)
    assert values(made, [f"{secret} !"])[0] > values(made, [secret])[0], (
        "others of its words were learnt from it"
    )


def test_satisfaction_needs_episodes_of_either_kind():
    assert ready(Satisfaction(), examples(*rated(18))).unready == (
        "9 episodes rated well and 9 rated badly in the train split, 10 of each needed"
    )
    assert ready(Satisfaction(), examples(*rated(20))).unready is None
    assert ready(Satisfaction(), examples(["fine"] * 40, [True] * 40)).unready is not None


def test_a_score_is_a_rating_too():
    given_examples = tuple(
        Example(text, None, 4.0 if good else 2.0, f"e{n}")
        for n, (text, good) in enumerate(zip(*rated(40), strict=True))
    )
    assert ready(Satisfaction(), given_examples).unready is not None
    made = ready(Satisfaction(rating="score", good=3), given_examples)
    assert values(made, ["thanks, great"])[0] > 0.6


def test_satisfaction_in_a_run(store):
    texts, successes = rated(60)
    episodes = [
        dialogue(f"e{n:02}", reply=text, success=good)
        for n, (text, good) in enumerate(zip(texts, successes, strict=True))
    ]
    spec = spec_of("satisfaction", when="user_reply <> ''")
    learnt = ready_scorers(spec, store.con, tables_of(episodes[:40]))
    found = scored(store, "satisfaction", episodes, learnt, when="user_reply <> ''")
    rest = [(value > 0.5) == success for (value, _), success in zip(found[40:], successes[40:], strict=True)]
    assert sum(rest) >= 18
    assert len(results(store)) == 60
    assert scored(store, "satisfaction", episodes, learnt, when="user_reply <> ''") == found
    assert scored(store, "satisfaction", episodes[:1], when="user_reply <> ''")[0][1].startswith(
        "0 episodes rated well"
    )
