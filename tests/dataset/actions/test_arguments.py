"""Templates of arguments: what they spell out, what they mask, and that nothing outside the train split shapes them."""

import json

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logforge.dataset.actions.argument_fit import EXAMPLES, NUMBERS, TEMPLATES, fit_arguments
from logforge.dataset.actions.arguments import REST, ArgumentSpace, kind_of, leaves, number, template, word
from logforge.schemas.manifest import Vocabulary
from logforge.store.store import Store

TOOLS = Vocabulary.build(["book", "search"])


@pytest.fixture
def fit(store: Store):
    """Fits what is given as (episode, tool, arguments); each episode is a split group of its own."""

    def fitted(*calls, aliases=None, earlier=None, tools=TOOLS):
        rows = [
            {
                "episode_id": episode, "step": step, "position": 0, "kind": "tool", "action": tool, "action_valid": True,
                "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments, sort_keys=True),
            }
            for step, (episode, tool, arguments) in enumerate(calls)
        ]  # fmt: skip
        store.con.execute("DELETE FROM steps")
        store.insert("steps", pl.DataFrame(rows))
        names = sorted({episode for episode, _, _ in calls if not episode.startswith("test")})
        groups = pl.DataFrame(
            {"episode_id": names, "group_key": names},
            schema={"episode_id": pl.String, "group_key": pl.String},
        )
        return fit_arguments(store.con, groups, tools, aliases, earlier)

    return fitted


def texts(found, tool):
    return [item.template for item in found.space.templates if item.action == tool]


def test_words_that_two_groups_share_are_spelt_out_and_all_else_is_masked(fit):
    found = fit(
        (
            "a",
            "book",
            {"cabin": "economy", "seat": "12A", "user": "mia_li_3668", "bags": 2, "note": "mine alone"},
        ),
        (
            "b",
            "book",
            {"cabin": "economy", "seat": "14C", "user": "bo_wu_11", "bags": 1, "note": "other words"},
        ),
    )
    assert texts(found, "book") == [
        REST,
        '{"bags": <num>, "cabin": "economy", "note": <text>, "seat": <id>, "user": <id>}',
    ]
    assert texts(found, "search") == [REST]


def test_what_one_group_says_is_never_told(fit):
    found = fit(
        ("a", "book", {"cabin": "suite"}), ("a", "book", {"cabin": "suite"}), ("b", "book", {"cabin": "dorm"})
    )
    assert texts(found, "book") == [REST, '{"cabin": <text>}']
    assert "suite" not in json.dumps(found.space.to_dict())


def test_the_unseen_goes_to_the_rest_of_its_tool_and_what_is_no_tool_to_none(fit):
    space = fit(("a", "book", {"x": True}), ("b", "book", {"x": True})).space
    assert space.templates[space.of("book", '{"x": true}').template].template == '{"x": true}'
    for arguments in ('{"y": 1}', "{broken", "[1]", '{"x": false}'):
        assert space.templates[space.of("book", arguments).template].template == REST
    assert space.of("respond", "{}").template is None
    assert space.of("pay", "{}").template is None
    assert ArgumentSpace().of("book", "{}").template is None


def test_only_the_most_frequent_templates_of_a_tool_stay(fit):
    calls = [
        (episode, "book", {f"k{n:02}": 1})
        for n in range(TEMPLATES + 3)
        for episode in ["a", "b"] * (TEMPLATES + 3 - n)
    ]
    found = texts(fit(*calls), "book")
    assert found == [REST, *(f'{{"k{n:02}": <num>}}' for n in range(TEMPLATES))]


def test_numbers_have_columns_where_they_come_often_enough(fit):
    calls = [(f"e{n}", "book", {"price": n + 0.5, "nights": 1 if n else "one"}) for n in range(NUMBERS)]
    space = fit(*calls).space
    assert space.numbers == ("book.price",)
    assert space.of("book", '{"price": 3, "nights": 2}').numbers == ({"key": "book.price", "value": 3.0},)
    assert space.of("search", '{"price": 3}').numbers == ()


def test_the_held_out_splits_shape_nothing_and_order_does_not_matter(fit):
    train = [
        (f"e{n}", "book", {"cabin": "economy" if n % 3 else "first", "n": n}) for n in range(NUMBERS + 4)
    ]
    held = [(f"test{n}", "book", {"cabin": "cargo", "weight": 1.5}) for n in range(40)]
    alone, mixed, turned = fit(*train), fit(*train, *held), fit(*held, *train)
    assert alone.space == mixed.space == turned.space
    assert alone.candidates.drop("step").equals(turned.candidates.drop("step"))


def test_candidates_are_the_most_frequent_calls_of_each_template(fit):
    common, rare = {"cabin": "economy", "seat": "1A"}, {"cabin": "economy", "seat": "2B"}
    found = fit(
        ("b", "book", common),
        ("a", "book", common),
        ("c", "book", rare),
        ("d", "book", rare),
        ("e", "book", common),
    )
    rows = found.candidates.filter(pl.col("template") == 1)
    assert rows.select("action", "rank", "count", "episode_id", "step").rows() == [
        ("book", 0, 3, "a", 1),
        ("book", 1, 2, "c", 2),
    ]
    assert found.candidates.group_by("template").len()["len"].max() <= EXAMPLES


def test_calls_under_an_earlier_name_count_for_the_tool(fit):
    found = fit(("a", "reserve", {"x": True}), ("b", "book", {"x": True}), aliases={"reserve": "book"})
    assert texts(found, "book") == [REST, '{"x": true}']


def both(tool, **arguments):
    """The same call in two groups."""
    return [(episode, tool, arguments) for episode in "ab"]


def test_an_earlier_level_keeps_its_places_and_words_and_new_templates_follow(fit):
    old = both("book", cabin="economy", bags=1)
    earlier = fit(*old).space
    premium, pets, search = (
        both("book", cabin="premium", bags=1),
        both("book", pets=True),
        both("search", by="price"),
    )
    space = fit(*old, *premium, *pets, *search, earlier=earlier).space
    assert space.templates[: len(earlier.templates)] == earlier.templates
    added = [(item.action, item.template) for item in space.templates[len(earlier.templates) :]]
    assert added == [
        ("book", '{"bags": <num>, "cabin": <text>}'),
        ("book", '{"pets": true}'),
        ("search", '{"by": "price"}'),
    ]
    assert space.words == {
        "book": {"cabin": frozenset({'"economy"'})},
        "search": {"by": frozenset({'"price"'})},
    }
    assert fit(*old, *premium).space.words["book"]["cabin"] == {'"economy"', '"premium"'}, (
        "what a fit would say"
    )


def test_a_tool_with_all_its_templates_gets_no_more(fit):
    full = [call for n in range(TEMPLATES) for call in both("book", **{f"k{n:02}": 1})]
    earlier = fit(*full).space
    space = fit(*full, *(both("book", other=True) * 5), earlier=earlier).space
    assert space == earlier


def test_an_earlier_level_goes_by_the_names_of_today(fit):
    calls = [(f"e{n}", "book", {"cabin": "economy", "bags": n}) for n in range(NUMBERS)]
    earlier = fit(*calls).space
    today = Vocabulary.build(["reserve", "search"], TOOLS, {"book": "reserve"})
    space = fit(*calls, aliases={"book": "reserve"}, earlier=earlier, tools=today).space
    assert [item.action for item in space.templates] == ["reserve", "reserve", "search"]
    assert [item.template for item in space.templates] == [item.template for item in earlier.templates]
    assert space.numbers == ("reserve.bags",)
    assert space.of("reserve", '{"bags": 3, "cabin": "economy"}').template == 1


def test_where_both_names_had_templates_those_of_the_old_stay_unused(fit):
    calls = [*both("book", x=True), *both("search", x=True)]
    earlier = fit(*calls).space
    today = Vocabulary.build(["search"], TOOLS, {"book": "search"})
    space = fit(*calls, aliases={"book": "search"}, earlier=earlier, tools=today).space
    assert space.templates == earlier.templates
    place = space.of("search", '{"x": true}').template
    assert space.templates[place] == earlier.templates[3]


def test_of_several_old_names_of_one_tool_the_first_gives_its_templates(fit):
    calls = [(f"e{n}", tool, {"x": True, "n": n}) for n in range(NUMBERS) for tool in ("book", "search")]
    earlier, aliases = fit(*calls).space, {"book": "lookup", "search": "lookup"}
    today = Vocabulary.build(["lookup"], TOOLS, aliases)
    space = fit(*calls, aliases=aliases, earlier=earlier, tools=today).space
    assert [item.action for item in space.templates] == ["lookup", "lookup", "search", "search"]
    assert space.numbers == ("lookup.n", "search.n")
    assert set(space.words) <= {"lookup", "search"}
    assert space.of("lookup", '{"n": 3, "x": true}').template == 1
    assert [action for action in today.actions if action in ("lookup", "search")] == ["lookup", "search"]


CALLS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["book", "search"]),
        st.dictionaries(
            st.sampled_from("xyz"), st.sampled_from(["red", "blue", 3, True, "id 44"]), max_size=2
        ),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CALLS, CALLS)
def test_whatever_is_added_a_call_stays_in_its_template(fit, before, after):
    earlier = fit(*before).space
    later = fit(*before, *after, earlier=earlier).space
    assert later.templates[: len(earlier.templates)] == earlier.templates
    assert later.numbers[: len(earlier.numbers)] == earlier.numbers
    assert len(set(later.templates)) == len(later.templates)
    for _, tool, arguments in before:
        text = json.dumps(arguments, sort_keys=True)
        place, now = earlier.of(tool, text).template, later.of(tool, text).template
        assert now == place or earlier.templates[place].template == REST
    assert fit(*before, *after, earlier=later).space == later


def test_a_space_reads_back(fit):
    space = fit(("a", "book", {"cabin": "first"}), ("b", "book", {"cabin": "first"})).space
    assert ArgumentSpace.from_dict(json.loads(json.dumps(space.to_dict()))) == space


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=3), values, max_size=4))
def test_any_arguments_have_a_template_that_their_order_does_not_change(arguments):
    turned = dict(reversed(arguments.items()))
    one, other = leaves(json.dumps(arguments)), leaves(json.dumps(turned))
    assert template(one, {}) == template(other, {})


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("a", 3, "<num>"),
        ("a", [1], "<list>"),
        ("a", {}, "<object>"),
        ("a", "x@y.org", "<email>"),
        ("a", "two words 7", "<text>"),
    ],
)
def test_kinds(key, value, kind):
    assert kind_of(key, value) == kind


def test_names_and_numbers_are_no_words_and_numbers_must_fit():
    assert word("name", "Mia Li") is None
    assert word("seat", "12A") is None
    assert word("cabin", "economy") == '"economy"'
    assert number(True) is None
    assert number(1e300) is None
    assert number(10**400) is None
    assert number(7) == 7.0
