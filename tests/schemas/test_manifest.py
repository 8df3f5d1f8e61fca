import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.schemas.errors import CheckFailed, InputError, Mismatch, UnknownName
from logforge.schemas.manifest import INVALID, FeatureSlice, Manifest, SourceRef, SplitSummary, Vocabulary
from support.made_arrays import manifest

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


def sealed(**changes):
    return manifest(**changes).sealed(
        {"train": SplitSummary(2, 5, 1, 1, 1)}, (-1, 2), {"train/actions.npy": "ab"}
    )


def test_vocabulary_order_and_ids():
    vocabulary = Vocabulary.build(["refund", "Search", "refund"])
    assert vocabulary.actions == ("respond", "clarify", "Search", "refund", INVALID)
    assert (vocabulary.id("refund"), vocabulary.invalid, vocabulary.size) == (3, 4, 5)
    assert "refund" in vocabulary
    assert "pay" not in vocabulary


def test_unknown_action_names_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'refund'"):
        Vocabulary.build(["refund"]).id("refunt")


@given(st.sets(names), st.sets(names), st.sets(names))
def test_ids_never_move(first, second, third):
    earlier = Vocabulary.build(first)
    later = Vocabulary.build(third, Vocabulary.build(second, earlier))
    assert all(later.id(action) == place for place, action in enumerate(earlier.actions))
    assert later.invalid == earlier.invalid
    assert set(later.actions) == {"respond", "clarify", INVALID} | first | second | third


def test_a_tool_with_a_reserved_name_shares_its_id():
    assert Vocabulary.build(["respond", INVALID]).actions == ("respond", "clarify", INVALID)


@pytest.mark.parametrize("actions", [("respond", "clarify"), ("respond", "clarify", "a", "a", INVALID)])
def test_broken_vocabularies_are_refused(actions):
    with pytest.raises(CheckFailed, match="actions"):
        Vocabulary(actions)


@given(st.dictionaries(names, values, max_size=4), st.sampled_from([0, 1, 0.95]))
def test_round_trip(config, gamma):
    made = sealed(config=config, gamma=gamma)
    text = made.to_json()
    assert Manifest.from_json(text) == made
    assert Manifest.from_json(text).to_json() == text
    assert text.endswith("}\n")


def test_text_does_not_depend_on_order_of_keys_or_sources():
    one = sealed(config={"a": 1, "b": 2}, sources=(SourceRef("1", "x"), SourceRef("2", "x")))
    other = sealed(
        config={"b": 2, "a": 1}, sources=(SourceRef("2", "x"), SourceRef("1", "x"), SourceRef("2", "x"))
    )
    assert one.to_json() == other.to_json()


def test_hash_is_of_the_content_and_not_of_the_name():
    assert sealed().hash == sealed(dataset="renamed").hash
    changes = [{"gamma": 0.8}, {"spec_hash": "x"}, {"config": {}}, {"encoder": None}]
    changes += [{"layout": (FeatureSlice("all", 0, 3),)}, {"actions": Vocabulary.build(["search"]).actions}]
    hashes = {sealed(**change).hash for change in changes}
    assert len(hashes - {sealed().hash}) == len(changes)


def test_tuples_in_the_config_read_back_as_they_are_held():
    assert sealed(config={"fractions": (0.5, 0.5)}).config == {"fractions": [0.5, 0.5]}


def test_other_schema_versions_are_refused():
    with pytest.raises(Mismatch, match=r"runs/m\.json: schema version: expected 3, found 1"):
        Manifest.from_json(
            sealed().to_json().replace('"schema_version": 3', '"schema_version": 1'), "runs/m.json"
        )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[:-20], "not a manifest"),
        (lambda text: "[]", "not a manifest"),
        (lambda text: b"\xff\xfe", "not a manifest"),
        (lambda text: "{}", "schema_version"),
        (lambda text: text.replace('"gamma"', '"gama"'), "gama"),
        (lambda text: text.replace('"gamma": 0.9', '"gamma": "x"'), r"\$.gamma"),
        (lambda text: text.replace('"gamma": 0.9', '"gamma": 1.5'), "not in"),
        (lambda text: text.replace('"stop": 3', '"stop": 4'), "layout ends at 4"),
        (lambda text: text.replace('"<invalid>"', '"other"'), "'<invalid>' is missing"),
    ],
)
def test_malformed_manifests_are_refused_with_the_path(change, said):
    with pytest.raises(InputError, match=said) as caught:
        Manifest.from_json(change(sealed().to_json()), "here/manifest.json")
    assert caught.value.path == "here/manifest.json"


@pytest.mark.parametrize(("old", "new"), [('"gamma": 0.9', '"gamma": 0.8'), ('"ab"', '"cd"')])
def test_altered_and_unsealed_manifests_are_refused(old, new):
    with pytest.raises(Mismatch, match="hash"):
        Manifest.from_json(sealed().to_json().replace(old, new))
    with pytest.raises(Mismatch, match="found none"):
        Manifest.from_json(manifest().to_json())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"layout": (FeatureSlice("a", 0, 1), FeatureSlice("b", 2, 3))}, "ends at 1"),
        ({"layout": (FeatureSlice("a", 0, 2), FeatureSlice("b", 1, 3))}, "ends at 2"),
        ({"layout": (FeatureSlice("a", 0, 1), FeatureSlice("a", 1, 3))}, "'a' is there twice"),
        ({"layout": (FeatureSlice("a", 0, 2),)}, "it is 3, the layout ends at 2"),
        ({"layout": (), "observation_size": 0}, "observation_size"),
        ({"gamma": float("nan")}, "gamma"),
        ({"dataset": ""}, "no name"),
        ({"config": {"x": float("inf")}}, "config"),
        ({"config": {"x": {1, 2}}}, "config"),
        ({"config": {"x": "\ud800"}}, "config"),
    ],
)
def test_unsound_manifests_cannot_be_made(change, said):
    with pytest.raises(CheckFailed, match=said):
        manifest(**change)


def test_every_problem_is_listed():
    with pytest.raises(CheckFailed) as caught:
        manifest(gamma=2, dataset="", observation_size=9)
    assert len(caught.value.failures) == 3


def test_a_changed_manifest_is_checked_too():
    with pytest.raises(CheckFailed):
        msgspec.structs.replace(manifest(), gamma=7.0)
