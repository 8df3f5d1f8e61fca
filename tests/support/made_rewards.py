"""Steps and specs for rewards."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from logforge.rewards.pipeline import parse_spec
from logforge.schemas.episode import Episode, Step
from logforge.schemas.errors import SpecError


def step(number, action="respond", status=None, **more):
    kind = "tool" if status else action
    return Step(
        step=number,
        position=number,
        kind=kind,
        action=action,
        locator=f"a:{number}",
        result_status=status,
        **more,
    )


def episode(name, steps, *, ending="terminal", success=None, **more):
    return Episode(
        episode_id=name,
        format="tau_bench",
        locator=f"{name}#",
        ending=ending,
        ending_reason="made",
        messages=[],
        steps=steps,
        success=success,
        **more,
    )


def spec_of(*terms, gamma=0.99):
    """A spec of terms in flow style: `a: {value: 1}`."""
    return parse_spec(f"gamma: {gamma}\nterms:\n" + "".join(f"  {term}\n" for term in terms))


def values(frame, term):
    """One term's values in row order; None where it is null or dropped."""
    return [next((t["value"] for t in row if t["key"] == term), None) for row in frame["reward_terms"]]


def problems(text):
    with pytest.raises(SpecError) as caught:
        parse_spec(text, "spec.yaml")
    return caught.value.problems


@st.composite
def random_episodes(draw):
    made = []
    for number in range(draw(st.integers(1, 4))):
        steps = []
        for index in range(draw(st.integers(1, 8))):
            status = draw(statuses)
            action = draw(actions) if status else draw(st.sampled_from(["respond", "clarify"]))
            arguments = draw(st.sampled_from(["{}", '{"a":1}']))
            steps.append(step(index, action, status, arguments=arguments))
        made.append(
            episode(
                f"e{number}",
                steps,
                ending=draw(st.sampled_from(["terminal", "truncated"])),
                success=draw(st.sampled_from([True, False, None])),
            )
        )
    return made


statuses = st.sampled_from([None, "ok", "error", "empty", "timeout", "refused", "missing"])


actions = st.sampled_from(["get_user_details", "search", "update"])
