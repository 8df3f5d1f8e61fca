from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.dataset.actions.vocabulary import ActionSpace
from logforge.schemas.episode import Episode
from logforge.schemas.errors import UnknownName

ROWS: list[tuple[str, list[str] | None, list[tuple[str, str, bool]]]] = [
    ("a", None, [("search", "tool", True), ("respond", "respond", True), ("made_up", "tool", False)]),
    ("a", ["book", "search"], [("clarify", "clarify", True)]),
    ("b", None, [("run", "tool", True)]),
    ("c", None, []),
]


def episode(format_name: str, tools: list[str] | None) -> Episode:
    shape: dict[str, Any] = {"episode_id": "e", "locator": "", "ending": "terminal", "ending_reason": ""}
    return Episode(format=format_name, tools=tools, messages=[], steps=[], **shape)


def allowed(space: ActionSpace, format_name: str, tools: list[str] | None) -> set[str]:
    (mask, _), *_ = space.masks(episode(format_name, tools))
    return {name for name, on in zip(space.vocabulary.actions, mask, strict=True) if on}


def test_hallucinated_tools_are_no_actions() -> None:
    space = ActionSpace.build(ROWS)
    assert space.vocabulary.actions == ("respond", "clarify", "book", "run", "search", "<invalid>")


def test_a_logged_mask_holds_what_was_offered_and_speech() -> None:
    space = ActionSpace.build(ROWS)
    assert allowed(space, "a", ["book"]) == {"respond", "clarify", "book"}
    assert allowed(space, "a", []) == {"respond", "clarify"}
    assert space.masks(episode("a", ["book"]))[0].kind == "logged"


def test_an_inferred_mask_holds_every_tool_of_the_format_and_of_no_other() -> None:
    space = ActionSpace.build(ROWS)
    assert allowed(space, "a", None) == {"respond", "clarify", "book", "search"}
    assert allowed(space, "b", None) == {"respond", "clarify", "run"}
    assert allowed(space, "c", None) == {"respond", "clarify"}
    assert space.masks(episode("a", None))[0].kind == "inferred"


def test_an_unseen_format_without_a_tool_list_is_refused() -> None:
    with pytest.raises(UnknownName, match="valid: a, b, c"):
        ActionSpace.build(ROWS).masks(episode("d", None))


def test_an_offered_tool_without_an_id_has_no_place_in_the_mask() -> None:
    assert allowed(ActionSpace.build(ROWS), "d", ["book", "unheard_of"]) == {"respond", "clarify", "book"}


def test_earlier_ids_stay_and_tools_no_longer_seen_are_masked() -> None:
    earlier = ActionSpace.build([("b", None, [("old", "tool", True), ("run", "tool", True)])]).vocabulary
    space = ActionSpace.build(ROWS, earlier)
    assert space.vocabulary.actions == (*earlier.actions, "book", "search")
    assert allowed(space, "b", None) == {"respond", "clarify", "run"}


def test_a_space_survives_its_dictionary() -> None:
    space = ActionSpace.build(ROWS)
    assert ActionSpace.from_dict(space.to_dict()) == space


NAMES = st.sampled_from(["respond", "clarify", "<invalid>", "a", "b", "c"])
STEPS = st.lists(st.tuples(NAMES, st.sampled_from(["tool", "respond"]), st.booleans()), max_size=4)


@given(
    st.lists(
        st.tuples(st.sampled_from("xy"), st.none() | st.lists(NAMES, max_size=3), STEPS),
        min_size=1,
        max_size=5,
    )
)
def test_no_mask_ever_allows_the_invalid_action_and_the_order_of_episodes_does_not_matter(rows: Any) -> None:
    space = ActionSpace.build(rows)
    assert ActionSpace.build(rows[::-1]) == space
    for format_name, tools, _ in rows:
        mask = space.masks(episode(format_name, tools))[0].allowed
        assert not mask[space.vocabulary.invalid]
        assert mask[space.vocabulary.id("respond")]
        assert mask[space.vocabulary.id("clarify")]
        assert mask.dtype == np.bool_
