"""Aliases: how they are written, what is refused, and what they rename."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.dataset.actions.names import read_aliases, renamed, resolve_aliases
from logforge.schemas.episode import Episode, Step
from logforge.schemas.errors import CheckFailed, SpecError, UnknownName, UsageError
from logforge.schemas.manifest import INVALID, OTHER, Vocabulary


def episode(*actions, tools=None):
    steps = [Step(step=n, position=n, kind="tool", action=name, locator="") for n, name in enumerate(actions)]
    return Episode(
        episode_id="e", format="f", locator="", ending="terminal", ending_reason="", messages=[], steps=steps, tools=tools
    )  # fmt: skip


def test_pairs_and_files_are_read_alike(tmp_path):
    file = tmp_path / "names.yaml"
    file.write_text("find: search\n")
    assert read_aliases(["look=search", str(file)]) == {"look": "search", "find": "search"}


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        (["a"], "neither OLD=NEW nor a file"),
        (["=b"], "missing or reserved"),
        (["a=respond"], "reserved"),
        ([f"{OTHER}=a"], "reserved"),
        (["a=b", "a=c"], "alias of both 'b' and 'c'"),
    ],
)
def test_what_is_no_alias_is_refused(given_, said):
    with pytest.raises(UsageError, match=said):
        read_aliases(given_)


def test_a_file_that_is_no_mapping_is_refused(tmp_path):
    (tmp_path / "names.yaml").write_text("- a\n")
    with pytest.raises((UsageError, SpecError), match=r"names\.yaml"):
        read_aliases([str(tmp_path / "names.yaml")])


def test_names_of_names_are_followed_and_circles_and_unknown_names_refused():
    logs = [episode("a", "b", "c")]
    assert resolve_aliases({"a": "b", "b": "c"}, logs) == {"a": "c", "b": "c"}
    with pytest.raises(UsageError, match="a = b = a lead round in a circle"):
        resolve_aliases({"a": "b", "b": "a"}, logs)
    with pytest.raises(UnknownName, match="did you mean 'c'"):
        resolve_aliases({"a": "cc"}, logs)


def test_an_earlier_vocabulary_passes_its_aliases_on():
    earlier = Vocabulary.build(["b"], aliases={"a": "b"})
    assert resolve_aliases({}, [], earlier) == {"a": "b"}
    assert resolve_aliases({"b": "c"}, [episode("c")], earlier) == {"a": "c", "b": "c"}


def test_a_renamed_tool_keeps_its_id_under_the_new_name():
    earlier = Vocabulary.build(["book", "look"])
    now = Vocabulary.build(["search", "book"], earlier, {"look": "search"})
    assert now.id("search") == now.id("look") == earlier.id("look")
    assert now.size == earlier.size
    assert now.renamed(earlier.actions) == list(now.actions)
    assert now.renamed(["x", *earlier.actions[1:]]) != list(now.actions)


def test_two_ids_that_became_one_tool_leave_one_unused():
    earlier = Vocabulary.build(["look", "search"])
    now = Vocabulary.build(["search"], earlier, {"look": "search"})
    assert now.actions == earlier.actions
    assert now.id("look") == now.id("search") == earlier.id("search")


@given(
    st.sets(st.sampled_from("abcdef")), st.sets(st.sampled_from("abcdef")), st.sets(st.sampled_from("abcdef"))
)
def test_ids_never_move_whatever_becomes_rare(first, second, rare):
    earlier = Vocabulary.build(first)
    others = dict.fromkeys((second & rare) - first, 1)
    now = Vocabulary.build(second, earlier, others=others)
    assert all(now.id(name) == place for place, name in enumerate(earlier.actions))
    assert {now.id(name) for name in others} <= {now.other}
    assert (OTHER in now.actions) == bool(others)
    assert now.unplayable[0] == now.id(INVALID)


def test_a_vocabulary_whose_alias_leads_nowhere_is_refused():
    with pytest.raises(CheckFailed, match="'a' is an alias of 'b', which has no id"):
        Vocabulary(("respond", "clarify", INVALID), {"a": "b"})


def test_steps_lists_and_proposals_are_renamed_and_lists_stay_shared():
    logged = episode("look", "book", tools=["look", "search", "book"])
    own = ["look"]
    steps = [msgspec.structs.replace(step, tools=own, proposed_action="look") for step in logged.steps]
    found = renamed(msgspec.structs.replace(logged, steps=steps), {"look": "search"})
    assert [step.action for step in found.steps] == ["search", "book"]
    assert [step.proposed_action for step in found.steps] == ["search", "search"]
    assert found.tools == ["search", "book"]
    assert found.steps[0].tools is found.steps[1].tools == ["search"]
    assert renamed(logged, {"other": "search"}) is logged
