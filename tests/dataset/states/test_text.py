"""A state in words, and back: no symbol is lost, and nothing a log says passes for the template's own words."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.dataset.states.memory import Memory, Remembered
from logforge.dataset.states.symbolic_state import GroupCall, PastCall, State, Turn
from logforge.dataset.states.text import TEMPLATE, parse_state, state_text
from logforge.schemas.errors import InputError, Mismatch
from support.made_episodes import episodes, parallel_episode, real_episodes, state_builder

TEXTS = st.text(max_size=20) | st.sampled_from(
    [
        "none",
        '"',
        "\\",
        "\n- user: none\n",
        "text ",
        '{"a":1}',
        f"{TEMPLATE}\nThe task: none",
        "\u2028",
        "- x\n",
    ]
)
MAYBE = st.none() | TEXTS
NUMBERS = st.none() | st.floats(0, 1e12)
COUNTS = st.integers(0, 10**6)
CALLS = {
    "action": TEXTS,
    "arguments": TEXTS | st.sampled_from(['{"n":1}', "[1, 2]", " {}", "1", "NaN", "{}\n"]),
}
STATES = st.builds(
    State,
    task=MAYBE,
    window=st.lists(st.builds(Turn, TEXTS, MAYBE), max_size=3).map(tuple),
    thought=MAYBE,
    history=st.lists(
        st.builds(PastCall, **CALLS, status=TEXTS, error_class=MAYBE, result=MAYBE, latency=NUMBERS),
        max_size=3,
    ).map(tuple),
    group=st.lists(st.builds(GroupCall, **CALLS), max_size=3).map(tuple),
    steps_used=COUNTS,
    errors=COUNTS,
    mask=st.lists(TEXTS, max_size=3).map(tuple),
    memory=st.builds(
        Memory,
        st.lists(st.builds(Remembered, TEXTS, COUNTS, COUNTS, TEXTS, MAYBE), max_size=3).map(tuple),
        st.lists(TEXTS, max_size=3).map(tuple),
    ),
    elapsed=NUMBERS,
    hour=NUMBERS,
)


@given(STATES)
@settings(max_examples=300, deadline=None)
def test_every_state_comes_back(state: State) -> None:
    text = state_text(state)
    assert parse_state(text) == state
    assert state_text(parse_state(text)) == text


@given(episodes())
@settings(max_examples=50, deadline=None)
def test_the_states_of_an_episode_come_back(episode) -> None:
    states = state_builder().symbols(episode)
    assert [parse_state(state_text(state)) for state in states] == states


def test_the_states_of_real_episodes_come_back() -> None:
    for episode in real_episodes(3):
        states = state_builder().symbols(msgspec.structs.replace(episode, format="invented"))
        assert [parse_state(state_text(state)) for state in states] == states


def test_every_field_of_a_state_is_in_the_text() -> None:
    """A field added to State, or to what it holds, must be added to the template, under a new id."""
    assert State.__struct_fields__ == (
        *(
            "task",
            "window",
            "thought",
            "history",
            "group",
            "steps_used",
            "errors",
            "mask",
            "memory",
            "elapsed",
            "hour",
        ),
    )
    assert PastCall._fields == ("action", "status", "error_class", "arguments", "result", "latency")
    assert (GroupCall._fields, Turn._fields) == (("action", "arguments"), ("role", "content"))
    assert (Memory._fields, Remembered._fields) == (
        ("actions", "said"),
        ("action", "calls", "last", "status", "answer"),
    )


def test_the_words_are_those_of_the_template() -> None:
    """A changed wording takes a new template id."""
    third = state_builder().symbols(parallel_episode())[2]
    assert (
        state_text(third)
        == f"""{TEMPLATE}
The task: "book 2 seats"
Decisions so far: 2
Failed calls so far: 1
Seconds since the first message: 3.0
Hour of the day (UTC): {third.hour!r}
The last messages, oldest first:
- user: "book 2 seats"
- assistant: ""
- tool: "Error: not found"
- tool: "3 seats"
The last thought: "two at once"
The last tool calls, oldest first:
- find with {{"n":2}}: ok, error none, result "3 seats", seconds none
- book with {{"n":2}}: error, error "not_found", result "Error: not found", seconds none
Called so far in the same parallel group:
Remembered of each action:
- book: times 1, last as decision 1, error, last answer none
- find: times 1, last as decision 0, ok, last answer "3 seats"
What the user said after their first message:
Actions on offer:
- book
- clarify
- find
- pay
- respond
"""
    )


def test_another_template_is_refused() -> None:
    with pytest.raises(Mismatch, match="template"):
        parse_state("logforge-state/0\nThe task: none\n")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Decisions so far: 2", "Decisions so far: two"),
        ("Decisions so far: 2", "Decisions so far: true"),
        ('"two at once"', "two at once"),
        ("- book\n", "- book "),
        ("Failed calls so far: 1\n", ""),
        ("- respond\n", "- respond\nmore\n"),
        ("seconds none", "seconds soon"),
    ],
)
def test_a_changed_text_is_refused_with_its_line(old: str, new: str) -> None:
    text = state_text(state_builder().symbols(parallel_episode())[2])
    assert old in text
    with pytest.raises(InputError, match=r"state:\d+: expected"):
        parse_state(text.replace(old, new, 1))
