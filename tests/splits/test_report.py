import polars as pl
import pytest

from logforge.ingestion.pipeline import ingest
from logforge.schemas.errors import CheckFailed
from logforge.splits.assign import assign_splits, grouping_frame
from logforge.splits.report import MOVES, balance, moves, prove, task_leak
from logforge.store.store import Store
from support.made_splits import frame
from support.places import SHARED


def splits(*rows):
    """From (episode_id, group_key, split, reason)."""
    names = ("episode_id", "group_key", "split", "reason")
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")


def test_a_leak_stops_with_every_key_named():
    episodes = frame(("a", {"task_id": "1"}), ("b", {"task_id": "1"}), ("c", {}))
    near = pl.DataFrame({"episode_a": ["b"], "episode_b": ["c"]})
    leaky = splits(("a", "k", "train", ""), ("b", "l", "test", ""), ("c", "m", "train", ""))
    with pytest.raises(CheckFailed, match="2 keys in two splits") as caught:
        prove(episodes, leaky, near)
    assert [problem.what for problem in caught.value.failures] == [
        "near b ~ c lies in test, train",
        "task f/1 lies in test, train",
    ]
    prove(episodes, assign_splits(episodes, 0, near=near), near)


def test_balance_counts_outcomes_by_split_and_kind():
    rows = [
        ("a", "test", "agent_log", True),
        ("a", "test", "agent_log", True),
        ("b", "train", "agent_log", False),
        ("c", "train", "agent_log", None),
        ("d", "train", "human_demo", True),
    ]
    found = balance(
        pl.DataFrame(rows, schema=["episode_id", "split", "source_kind", "success"], orient="row")
    )
    assert found.rows() == [
        ("train", "agent_log", 2, 2, 0, 1, 1),
        ("train", "human_demo", 1, 1, 1, 0, 0),
        ("test", "agent_log", 1, 2, 1, 0, 0),
    ]


def test_nothing_moves_without_cause_and_new_episodes_are_no_moves():
    before = splits(("a", "k", "train", ""), ("gone", "x", "test", ""))
    after = splits(("a", "k", "train", ""), ("new", "y", "test", ""))
    assert moves(before, after).is_empty()
    assert moves(before.clear(), after).columns == list(MOVES)


@pytest.mark.parametrize(
    ("before", "after", "same", "found"),
    [
        (
            [("a", "k", "train", ""), ("b", "l", "test", ""), ("c", "l", "test", "")],
            [(name, "k", "train", "task,near") for name in "abc"],
            True,
            [("l", "k", "test", "train", 2, "groups merged by task,near")],
        ),
        (
            [("a", "k", "train", ""), ("b", "k", "train", "")],
            [("a", "k", "train", ""), ("b", "l", "test", "")],
            True,
            [("k", "l", "train", "test", 1, "what joined the group is gone")],
        ),
        (
            [("b", "l", "test", "")],
            [("b", "k", "train", "")],
            True,
            [("l", "k", "test", "train", 1, "the group's smallest key changed")],
        ),
        (
            [("a", "k", "train", "")],
            [("a", "k", "test", "")],
            True,
            [("k", "k", "train", "test", 1, "the cuts in time moved")],
        ),
        (
            [("a", "k", "train", "")],
            [("a", "k", "test", "")],
            False,
            [("k", "k", "train", "test", 1, "other settings")],
        ),
    ],
)
def test_each_move_has_its_cause(before, after, same, found):
    assert moves(splits(*before), splits(*after), same).rows() == found


def test_a_random_split_by_episode_leaks_as_its_chances_say():
    """Ten trials of each task against a hundred drawn splits."""
    episodes = frame(
        *((f"{task}-{trial}", {"task_id": str(task)}) for task in range(20) for trial in range(10))
    )
    found = task_leak(episodes, assign_splits(episodes, 0))
    assert found.ours == 0
    tested = leaked = 0
    draw = pl.Series(range(200 * 100)).shuffle(seed=1)
    for n in range(100):
        part = draw[n * 200 : (n + 1) * 200].rank()
        task = (
            episodes.with_columns(train=part <= 160)
            .group_by("task_id")
            .agg(pl.col("train").any(), test=(~pl.col("train")).any())
        )
        tested += task["test"].sum()
        leaked += task.filter("test")["train"].sum()
    assert found.random == pytest.approx(leaked / tested, abs=0.01)


def test_single_trials_leak_nothing_either_way():
    episodes = frame(*((f"e{n}", {"task_id": str(n)}) for n in range(50)))
    assert task_leak(episodes, assign_splits(episodes, 0))[1:] == (0.0, 0.0)
    assert task_leak(frame(("a", {})), splits(("a", "a", "test", ""))) == (0, None, None)


def test_tau_bench_by_random_episodes_trains_on_what_it_tests(tmp_path):
    """50 tasks of 3 trials: a random 80/20 split by episode has about 98 % of its test tasks in train, ours none."""
    logs = SHARED / "logs" / "tau_bench"
    if not logs.exists():
        pytest.skip("the shared logs are not at hand")
    with Store(tmp_path / "s.duckdb") as store:
        ingest(store, [logs])
        episodes = grouping_frame(store.episodes())
    found = task_leak(episodes, assign_splits(episodes, 0))
    assert episodes["task_id"].n_unique() == 50
    assert 0.96 < found.random < 1
    assert found.ours == 0
    assert found.tasks >= 3
