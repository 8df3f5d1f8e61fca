import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.connectors.episodes.builder import Call, EpisodeBuilder
from logforge.splits.duplicates import (
    LEAST,
    SCHEMA,
    THRESHOLD,
    jaccard,
    near_duplicates,
    shingles_of,
    text_of,
)
from support.made_episodes import finish
from support.made_texts import WORDS, prose


def episode(name, words, *, system="", results="found", task=None, **more):
    """A dialogue that says these words in turns, with one call."""
    builder = EpisodeBuilder()
    if system:
        builder.message("system", system, "x:0")
    half = len(words) // 2
    builder.message("user", " ".join(words[:half]), "x:1")
    builder.turn("", [Call("search", {"q": " ".join(words[:4])}, "c1")], "x:2")
    builder.result("c1", results, "x:3")
    builder.turn(" ".join(words[half:]), [], "x:4")
    # each is a task of its own, so that nothing but the text can make them alike
    return finish(builder, name, task_id=task or name, **more)


def pairs(episodes):
    found = near_duplicates(episodes)
    assert found.schema == SCHEMA
    return found.select("episode_a", "episode_b").rows()


def edited(words, seed, share):
    """Some of the words replaced, each in its place."""
    draw = random.Random(seed)
    return [draw.choice(WORDS) if draw.random() < share else word for word in words]


def ids(*episodes):
    return tuple(sorted(e.episode_id for e in episodes))


def test_a_twin_and_a_near_twin_are_found_among_strangers():
    strangers = [episode(f"s{n}", prose(n)) for n in range(60)]
    twin, near = episode("twin", prose(3)), episode("near", [*prose(5)[:-1], "else"])
    found = near_duplicates([*strangers, twin, near])
    assert set(found.select("episode_a", "episode_b").rows()) == {
        ids(strangers[3], twin),
        ids(strangers[5], near),
    }
    assert 0.95 < found["similarity"].min() < found["similarity"].max() == 1


def test_planted_pairs_are_found_when_their_similarity_suffices_and_only_then():
    """Against the exact similarity of every pair."""
    planted = []
    for n in range(80):
        words = prose(n, 300)
        planted += [episode(f"a{n}", words), episode(f"b{n}", edited(words, n, 0.02 * (n % 4)))]
    sets = {e.episode_id: shingles_of(text_of(e)) for e in planted}
    due = {
        ids(a, b)
        for a, b in zip(planted[::2], planted[1::2], strict=True)
        if jaccard(sets[a.episode_id], sets[b.episode_id])[0] >= THRESHOLD
    }
    assert 20 < len(due) < 80
    assert set(pairs(planted)) == due


def test_short_texts_are_no_duplicates():
    short = [episode(f"e{n}", ["hello", "there", "you"]) for n in range(5)]
    assert len(shingles_of(text_of(short[0]))) < LEAST
    assert pairs(short) == []


def test_a_shared_system_prompt_and_shared_results_make_no_duplicates():
    shared = " ".join(prose("shared", 2000))
    assert pairs(episode(f"e{n}", prose(n, 40), system=shared, results=shared) for n in range(30)) == []


def test_a_template_around_many_tasks_makes_no_duplicates_and_hides_none():
    template = prose("few-shot", 2000)
    many = [episode(f"e{n}", [*template, *prose(n, 60)]) for n in range(40)]
    twin = episode("twin", [*template, *prose(7, 60)[:-1], "else"])
    assert pairs(many) == []
    assert pairs([*many, twin]) == [ids(many[7], twin)]


def test_trials_of_one_task_are_no_template():
    """Fifty trials say the same; the task is one, so nothing of it is boilerplate."""
    trials = [episode(f"t{n}", [*prose(1), f"trial{n}"], task="one") for n in range(50)]
    assert len(pairs(trials)) == 49


def test_a_cluster_is_a_tree():
    copies = [episode(f"c{n}", [*prose(1), f"end{n}"]) for n in range(8)]
    found = pairs(copies)
    assert len(found) == 7
    assert {name for pair in found for name in pair} == {e.episode_id for e in copies}


@settings(max_examples=15, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 1000))
def test_the_order_of_arrival_changes_nothing(random_, seed):
    episodes = [episode(f"e{n}", edited(prose(n % 5), f"{seed}{n}", 0.02)) for n in range(20)]
    shuffled = random_.sample(episodes, len(episodes))
    assert near_duplicates(shuffled).equals(near_duplicates(episodes))


def test_case_and_punctuation_do_not_count_and_order_does():
    one = shingles_of("Book two seats, please: now!")
    assert np.array_equal(one, shingles_of("book TWO seats please now"))
    assert not np.array_equal(one, shingles_of("two book seats please now"))


def test_scripts_without_spaces_are_read_letter_by_letter():
    assert len(shingles_of("我想取消明天的航班预订")) == 9
    assert len(shingles_of("明日のフライトを取り消す")) == 10


def test_no_text_is_no_set():
    assert len(shingles_of("")) == len(shingles_of("one two")) == 0
    assert jaccard(shingles_of(""), shingles_of("")) == (0.0, 0)
    assert pairs([]) == []
