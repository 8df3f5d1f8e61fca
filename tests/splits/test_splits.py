import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.schemas.errors import UsageError
from logforge.schemas.transition import DRAWN_SPLITS
from logforge.splits.assign import ALONE, assign_splits, crossing, split_of
from support.made_splits import KEYS, episode_frames, frame
from support.thoroughness import enough


def groups(splits):
    """The partition, as a set of sets of episode ids."""
    return {frozenset(ids) for ids in splits.group_by("group_key").agg("episode_id")["episode_id"].to_list()}


@settings(max_examples=enough(25, 200), deadline=None)
@given(episode_frames(), st.integers(0, 5))
def test_no_key_lies_in_two_splits(episodes, seed):
    splits = assign_splits(episodes, seed, (0.4, 0.3, 0.3))
    assert splits["episode_id"].to_list() == sorted(episodes["episode_id"])
    assert crossing(episodes, splits).is_empty()


@settings(max_examples=enough(25, 200), deadline=None)
@given(episode_frames(), st.randoms(use_true_random=False))
def test_order_of_arrival_changes_nothing(episodes, random):
    order = list(range(episodes.height))
    random.shuffle(order)
    assert assign_splits(episodes[order], 1).equals(assign_splits(episodes, 1))


@settings(max_examples=enough(25, 200), deadline=None)
@given(episode_frames(), episode_frames(prefix="new-"))
def test_unrelated_new_episodes_move_nothing(old, new):
    before = assign_splits(old, 1)
    after = assign_splits(pl.concat([new, old]), 1)
    assert after.filter(pl.col("episode_id").is_in(before["episode_id"].to_list())).equals(before)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("task_id", "task"),
        ("task", "text"),
        ("group_id", "group"),
        ("session_id", "session"),
        ("user_id", "user"),
        ("parent_episode_id", "parent"),
        ("continues_episode_id", "continues"),
    ],
)
def test_each_key_joins_and_is_named(key, reason):
    splits = assign_splits(frame(("a", {key: "x"}), ("b", {key: "x"}), ("c", {key: "y"}), ("d", {})), 0)
    assert groups(splits) == {frozenset("ab"), frozenset("c"), frozenset("d")}
    assert splits["reason"].to_list() == [reason, reason, ALONE, ALONE]


def test_near_duplicates_join_and_are_named():
    episodes = frame(("a", {"task_id": "1"}), ("b", {"task_id": "2"}), ("c", {}), ("d", {}))
    near = pl.DataFrame({"episode_a": ["b", "a"], "episode_b": ["c", "elsewhere"]})
    splits = assign_splits(episodes, 0, near=near)
    assert groups(splits) == {frozenset("a"), frozenset("bc"), frozenset("d")}
    assert splits["reason"].to_list() == [ALONE, "near", "near", ALONE]
    assert splits["group_key"].to_list()[1:3] == ["task:f/2"] * 2
    assert crossing(episodes, splits, near).is_empty()


def test_crossing_names_a_pair_of_near_duplicates_in_two_splits():
    episodes = frame(("a", {}), ("b", {}))
    rows = [("a", "a", "train", ALONE), ("b", "b", "test", ALONE)]
    splits = pl.DataFrame(rows, schema=["episode_id", "group_key", "split", "reason"], orient="row")
    near = pl.DataFrame({"episode_a": ["a"], "episode_b": ["b"], "similarity": [0.95]})
    assert crossing(episodes, splits).is_empty()
    assert crossing(episodes, splits, near).rows() == [("near", "a ~ b", ["test", "train"], ["a", "b"])]


def dated(*rows):
    """Episodes from (episode_id, started_at, task_id)."""
    plain = frame(*((name, {"task_id": task}) for name, _, task in rows))
    return plain.with_columns(started_at=pl.Series([at for _, at, _ in rows], dtype=pl.Int64))


def test_a_split_by_time_tests_on_the_newest():
    episodes = dated(*((f"e{n}", n * 10, None) for n in range(20)))
    splits = assign_splits(episodes[::-1], 0, (0.7, 0.1, 0.2), by="time")
    by_id = dict(splits.select("episode_id", "split").iter_rows())
    assert [by_id[f"e{n}"] for n in range(20)] == ["train"] * 14 + ["validation"] * 2 + ["test"] * 4


def test_a_split_by_time_keeps_groups_whole_by_their_latest_start():
    rows = [(f"e{n:02}", n, f"t{n}") for n in range(10)]
    episodes = dated(*rows, ("late", 9, "t0"))
    splits = assign_splits(episodes, 0, (0.7, 0.15, 0.15), by="time")
    found = dict(splits.select("episode_id", "split").iter_rows())
    assert found["e00"] == found["late"] == found["e09"] == "validation", "equal starts stay together"
    assert crossing(episodes, splits).is_empty()
    latest = (
        episodes.join(splits, on="episode_id")
        .group_by("group_key")
        .agg(pl.col("started_at").max(), pl.col("split").first())
    )
    train = latest.filter(split="train")["started_at"].max()
    assert train < latest.filter(pl.col("split") != "train")["started_at"].min()


def test_a_split_by_time_needs_times():
    with pytest.raises(UsageError, match="1 of 2 groups hold no episode with a start time"):
        assign_splits(dated(("a", 1, None), ("b", None, None)), 0, by="time")
    with pytest.raises(UsageError, match="'weekday'"):
        assign_splits(dated(("a", 1, None)), 0, by="weekday")


def test_links_join_with_the_episode_they_name():
    episodes = frame(
        ("a", {}), ("b", {"parent_episode_id": "a"}), ("c", {"continues_episode_id": "b"}), ("d", {})
    )
    splits = assign_splits(episodes, 0)
    assert groups(splits) == {frozenset("abc"), frozenset("d")}
    assert splits["reason"].to_list() == ["parent,continues"] * 3 + [ALONE]


def test_chains_join_transitively():
    episodes = frame(
        ("a", {"task_id": "1", "user_id": "u"}),
        ("b", {"task_id": "2", "user_id": "u", "session_id": "s"}),
        ("c", {"task_id": "3", "session_id": "s"}),
        ("d", {"task_id": "3"}),
    )
    splits = assign_splits(episodes, 0)
    assert groups(splits) == {frozenset("abcd")}
    assert splits["group_key"].unique().to_list() == ["task:f/1"]
    assert splits["reason"].unique().to_list() == ["task,session,user"]


def test_a_task_text_joins_only_where_there_is_no_task_id():
    hello = {"task": "hello"}
    splits = assign_splits(
        frame(("a", hello | {"task_id": "1"}), ("b", hello | {"task_id": "2"}), ("c", hello)), 0
    )
    assert len(groups(splits)) == 3


def test_ids_of_different_formats_are_different():
    rows = [("a", {"task_id": "1"}), ("b", {"task_id": "1", "format": "g"})]
    assert len(groups(assign_splits(frame(*rows), 0))) == 2


def test_another_trial_of_a_known_task_leaves_the_split_alone():
    old = frame(("m", {"task_id": "1", "session_id": "s5"}))
    new = frame(("a", {"task_id": "1", "session_id": "s1"}))
    before = assign_splits(old, 3)
    after = assign_splits(pl.concat([old, new]), 3)
    assert after["group_key"].to_list() == before["group_key"].to_list() * 2
    assert after["split"].to_list() == before["split"].to_list() * 2


def test_fractions_are_met_and_seeds_differ():
    episodes = frame(*((f"e{n}", {}) for n in range(4000)))
    shares = [assign_splits(episodes, seed, (0.5, 0.3, 0.2))["split"].value_counts() for seed in (0, 1)]
    for share in shares:
        counts = dict(share.iter_rows())
        expected = dict(zip(DRAWN_SPLITS, (2000, 1200, 800), strict=True))
        assert all(abs(counts[name] - expected[name]) < 130 for name in DRAWN_SPLITS)
    assert not shares[0].sort("split").equals(shares[1].sort("split"))


def test_a_fraction_of_zero_gets_nothing():
    assert {split_of(f"k{n}", 0, (0.5, 0.5, 0.0)) for n in range(500)} == {"train", "validation"}
    assert {split_of(f"k{n}", 0, (0.0, 0.0, 1.0)) for n in range(50)} == {"test"}


@pytest.mark.parametrize("fractions", [(0.7, 0.3), (0.7, 0.2, 0.2), (1.2, -0.1, -0.1), (0.7, 0.15, 0.1)])
def test_fractions_that_are_no_partition_are_refused(fractions):
    with pytest.raises(UsageError, match="no partition"):
        assign_splits(frame(("a", {})), 0, fractions)


def test_no_episodes_are_no_rows():
    splits = assign_splits(frame(), 0)
    assert splits.is_empty()
    assert splits.columns == ["episode_id", "group_key", "split", "reason"]


@pytest.mark.parametrize("key", KEYS)
def test_crossing_finds_a_planted_leak(key):
    episodes = frame(("a", {key: "a"}), ("b", {key: "a"}), ("c", {}))
    splits = assign_splits(episodes, 0)
    leaky = splits.with_columns(
        split=pl.Series(["train", "test", "train"]), group_key=pl.Series(["1", "2", "3"])
    )
    found = crossing(episodes, leaky)
    assert found["episodes"].to_list()[0] == ["a", "b"]
    assert found["splits"].to_list()[0] == ["test", "train"]


def test_crossing_finds_a_group_key_in_two_splits_and_unassigned_episodes():
    episodes = frame(("a", {}), ("b", {}), ("c", {}), ("d", {}))
    rows = [
        ("a", "k", "train", ALONE),
        ("b", "k", "test", ALONE),
        ("c", "m", "train", ALONE),
        ("c", "m", "train", ALONE),
    ]
    splits = pl.DataFrame(rows, schema=["episode_id", "group_key", "split", "reason"], orient="row")
    found = crossing(episodes, splits)
    assert found.select("link", "key").rows() == [
        ("assignment", "c"),
        ("assignment", "d"),
        ("group key", "k"),
    ]
