"""A summary of the goal: a few of its sentences, and nothing that comes later."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.dataset.states.config import StateConfig
from logforge.dataset.states.goal_summary import SUMMARIES, WHOLE, goal_of
from logforge.schemas.episode import Episode
from logforge.schemas.errors import UnknownName
from support.made_episodes import episodes, parallel_episode, state_builder, with_another_future

LONG = """You are Mia. You are polite. Your flight to Rome was cancelled, and you want a refund of the flight to Rome.
It rains. If no refund of the flight is possible, you accept another flight to Rome! Bye."""


def test_the_central_sentences_are_those_about_the_matter_in_their_order() -> None:
    summary = goal_of(LONG, "central")
    assert "refund of the flight to Rome" in summary
    assert "another flight" in summary
    assert "It rains" not in summary
    assert summary.index("cancelled") < summary.index("another flight")


def test_the_lead_is_the_first_sentences() -> None:
    assert goal_of("One. Two! Three? Four.", "lead") == "One. Two! Three?"
    assert goal_of("no end", "lead") == goal_of("no end", "central") == "no end"


@pytest.mark.parametrize("name", [WHOLE, *SUMMARIES])
def test_no_instruction_has_no_summary(name: str) -> None:
    assert goal_of(None, name) is None


@given(st.text(max_size=200), st.sampled_from(sorted(SUMMARIES)))
@settings(max_examples=200, deadline=None)
def test_a_summary_holds_words_of_the_text_alone_and_is_its_own_summary(text: str, name: str) -> None:
    summary = SUMMARIES[name](text)
    assert set(summary.split()) <= set(text.split())
    assert len(summary.split()) <= len(text.split())


@given(episodes(), st.sampled_from(sorted(SUMMARIES)), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_no_summary_depends_on_what_comes_later(episode: Episode, name: str, chance: random.Random) -> None:
    builder = state_builder(goal=name)
    index = chance.randrange(len(episode.steps))
    mine, other = (
        builder.texts([builder.symbols(one)[index]])
        for one in (episode, with_another_future(episode, index, chance))
    )
    assert mine == other


def test_the_task_columns_hold_the_summary_and_nothing_else_changes() -> None:
    episode = parallel_episode()
    states = [
        state_builder(goal=name, blocks=("task",)).texts(state_builder().symbols(episode)[:1])
        for name in (WHOLE, "lead")
    ]
    assert states == [{"book 2 seats"}, {"book 2 seats"}]
    assert state_builder(goal="lead").size == state_builder().size
    assert state_builder(goal="lead").symbols(episode) == state_builder().symbols(episode)


def test_an_unknown_summary_is_refused() -> None:
    with pytest.raises(UnknownName, match=r"goal summary 'leed'\. did you mean 'lead'"):
        StateConfig(goal="leed")
