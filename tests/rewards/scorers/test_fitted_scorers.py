"""Scorers that learn from the train split: perplexity and satisfaction."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.core.frames import tables_of
from logforge.rewards.scorers.base import Example, Resources
from logforge.rewards.scorers.cross_fit import FOLDS, fitted, folds_of
from logforge.rewards.scorers.perplexity import NgramModel, Perplexity
from logforge.rewards.scorers.run import ready_scorers
from logforge.rewards.scorers.satisfaction import Satisfaction
from logforge.texts.similarity import tokens
from support.made_scores import dialogue, results, scored, spec_of

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
    assert len(results(store)) == 60, "each text of the train split by one model, the others by the whole one"
    assert scored(store, "satisfaction", episodes, learnt, when="user_reply <> ''") == found
    assert scored(store, "satisfaction", episodes[:1], when="user_reply <> ''")[0][1].startswith(
        "0 episodes rated well"
    )


def cross_fitted(scorer, given_examples, groups=None):
    return fitted(scorer, Resources(None), given_examples, groups)


@given(st.dictionaries(st.text("abc", min_size=1), st.sampled_from("uvwxyz"), min_size=1))
def test_a_group_lies_in_one_fold_and_folds_are_even(groups):
    folds = folds_of(groups)
    assert folds.keys() == groups.keys()
    of_group = {
        group: {folds[episode] for episode in groups if groups[episode] == group} for group in groups.values()
    }
    assert all(len(found) == 1 for found in of_group.values())
    sizes = Counter(fold for found in of_group.values() for fold in found)
    assert max(sizes.values()) - min(sizes.get(fold, 0) for fold in range(FOLDS)) <= 1
    assert folds_of(dict(reversed(groups.items()))) == folds


def test_nothing_of_an_episodes_group_is_in_its_model():
    """Trials of a task share a word that gives the outcome away: learnt from the others it would, by its own group it may not."""
    texts, successes = rated(80)
    groups = {f"e{n}": f"task {n // 4}" for n in range(80)}
    words = [f"{text} secret{n // 4}" for n, text in enumerate(texts)]
    models = cross_fitted(Satisfaction(), examples(words, successes), groups)
    for number in (0, 41, 79):
        model = models.of(f"e{number}", None)
        own = {f"e{n}" for n in range(80) if n // 4 == number // 4}
        fold = {episode for episode, found in models.fold_of.items() if found == models.fold_of[f"e{number}"]}
        assert own <= fold
        rest = [n for n in range(80) if f"e{n}" not in fold]
        apart = Satisfaction().ready(
            Resources(None, tuple(item for item in examples(words, successes) if item.episode_id not in fold))
        )
        assert model.version == apart.version
        assert values(model, [words[number]]) == values(apart, [words[number]])
        assert len(rest) == 64
    assert models.of("held out", None) is models.whole
    assert models.of("a copy of e3", "e3") is models.of("e3", None)


def test_the_same_text_scores_by_each_episodes_own_group(store):
    """`spam` was said in good episodes of one group alone: the others learn from it, its own group does not."""
    texts, successes = rated(60)
    said = [*texts, *["spam"] * 5, "spam"]
    episodes = [
        dialogue(f"e{n:02}", reply=text, success=good)
        for n, (text, good) in enumerate(zip(said, [*successes, *[True] * 5, None], strict=True))
    ]
    spec = spec_of("satisfaction", when="user_reply <> ''")
    train = episodes[:65]
    groups = {e.episode_id: "spammers" if n >= 60 else e.episode_id for n, e in enumerate(train)}
    learnt = ready_scorers(spec, store.con, tables_of(train), groups)
    found = scored(store, "satisfaction", episodes, learnt, when="user_reply <> ''")
    inside, outside = {value for value, _ in found[60:65]}, found[65][0]
    assert len(inside) == 1
    assert outside > inside.pop() + 0.05


def test_a_scorer_is_ready_when_all_its_models_are():
    few = cross_fitted(Satisfaction(), examples(*rated(20)))
    assert few.whole.unready is None
    assert "held out" in few.unready
    assert cross_fitted(Satisfaction(), examples(*rated(40))).unready is None
    assert cross_fitted(Perplexity(), examples(CORPUS[:19])).unready == "19 texts to learn from, 20 needed"
