"""Harder episodes are of later stages, and a stage holds exactly its share of earlier ones."""

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.checks.pipeline import check_dataset
from logforge.connectors.episodes.builder import Call, EpisodeBuilder
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.dataset.weights.curriculum import (
    HARD,
    STAGES,
    Difficulty,
    difficulty,
    difficulty_frame,
    load_stage,
    read_stages,
    replayed,
    stage_outcomes,
    stages_file,
    without,
)
from logforge.forgetting.pipeline import forget
from logforge.ingestion.pipeline import ingest
from logforge.schemas.errors import UnknownName, UsageError
from logforge.shards.array_rules import check_arrays
from logforge.shards.reader import load_shards
from logforge.store.store import Store
from support.made_episodes import finish

SPEC = "gamma: 0.9\nterms: {success: {when: success, value: 10, at: terminal}}\n"


def planted(turns, tools, errors, questions):
    """An episode with so many user messages, tools, failed calls and questions asked back."""
    builder = EpisodeBuilder()
    for turn in range(turns):
        builder.message("user", f"request {turn}", "x")
    for number in range(tools + errors):
        tool = f"tool{number}" if number < tools else "tool0"
        builder.turn("", [Call(tool, {"n": number}, f"c{number}")], "x")
        builder.result(f"c{number}", "fine" if number < tools else "Error: not found", "x")
    for number in range(questions):
        builder.turn(f"which one, {number}?", [], "x")
    builder.turn("that is all", [], "x")
    return finish(builder)


SIZES = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(0, 3), st.integers(0, 3))


@settings(max_examples=40, deadline=None)
@given(SIZES, st.integers(0, 3))
def test_more_turns_tools_errors_or_questions_never_make_an_episode_easier(sizes, which):
    harder = tuple(size + (place == which) for place, size in enumerate(sizes))
    one, other = difficulty(planted(*sizes)), difficulty(planted(*harder))
    assert one == Difficulty(*sizes)
    assert other == Difficulty(*harder)
    assert one.value < other.value
    assert one.stage <= other.stage


@pytest.mark.parametrize(
    ("sizes", "stage"),
    [
        ((1, 1, 0, 0), 1),
        ((1, 0, 0, 0), 1),
        ((2, 1, 0, 0), 2),
        ((1, 2, 0, 0), 2),
        ((1, 1, 0, 1), 2),
        ((1, 1, 1, 0), 3),
        ((1, HARD + 1, 0, 0), 3),
    ],
)
def test_stages_are_single_turns_several_turns_and_exceptions(sizes, stage):
    assert Difficulty(*sizes).stage == stage


@given(
    st.integers(0, 300), st.integers(0, 300), st.floats(0, 0.9), st.integers(0, 5), st.sampled_from(STAGES)
)
def test_a_stage_holds_exactly_its_share_of_earlier_episodes(earlier, own, fraction, seed, stage):
    names = [f"e{number}" for number in range(earlier)]
    again = replayed(names, own, stage, fraction, seed)
    assert len(set(again)) == len(again)
    assert set(again) <= set(names)
    assert abs(len(again) - fraction * (own + len(again))) <= 1 or len(again) == earlier
    assert again == replayed(names[::-1], own, stage, fraction, seed)


def test_which_ones_are_replayed_goes_by_the_seed_and_hardly_by_new_logs():
    names = [f"e{number}" for number in range(200)]
    one = replayed(names, 180, 2, 0.1, 0)
    assert len(one) == 20
    assert one != replayed(names, 180, 2, 0.1, 1)
    assert one != replayed(names, 180, 3, 0.1, 0)
    assert len(set(one) & set(replayed([*names, "new"], 180, 2, 0.1, 0))) >= 19


@pytest.mark.parametrize("fraction", [-0.1, 1.0, 1.5])
def test_what_is_no_share_is_refused(fraction):
    with pytest.raises(UsageError, match="no share to replay"):
        replayed(["a"], 1, 2, fraction, 0)


def test_episodes_that_are_taken_out_leave_the_others_where_they_are():
    labels = [1, 1, 1, 2, 2, 3, 2]
    names = [f"e{number}" for number in range(len(labels))]
    rows = pl.DataFrame({"episode_id": names, "split": ["train"] * 6 + ["test"]})
    hard = pl.DataFrame({"episode_id": names, "stage": labels})
    before = stages_file(rows, hard, 0.5, 0)
    kept = {"train": np.array([True, False, True, True, True, True]), "test": np.array([False])}
    left = json.loads(without(before, kept))
    assert left["labels"] == {"train": [1, 1, 2, 2, 3], "validation": [], "test": []}
    assert left["stages"][0]["episodes"] == [0, 1]
    names_left = [name for name, stays in zip(names, kept["train"], strict=False) if stays]
    for old, new in zip(json.loads(before)["stages"], left["stages"], strict=True):
        for key in ("episodes", "replayed"):
            due = [names[place] for place in old[key] if names[place] in names_left]
            assert [names_left[place] for place in new[key]] == due


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A store of sixty episodes of three kinds, and a dataset with a curriculum."""
    folder = tmp_path_factory.mktemp("curriculum")
    lines = []
    for number in range(60):
        name = f"{'abc'[number % 3]}{number}"
        messages = [{"role": "user", "content": f"please see to {name}"}]
        if number % 3 == 1:
            messages += [
                {"role": "assistant", "content": "at once"},
                {"role": "user", "content": f"and {name} too"},
            ]
        call = {
            "id": "c",
            "type": "function",
            "function": {"name": "see", "arguments": json.dumps({"at": name})},
        }
        result = f"Error: {name} not found" if number % 3 == 2 else f"{name} is seen"
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": result},
            {"role": "assistant", "content": f"{name} is done"},
        ]
        lines.append({"id": name, "task_id": name, "success": number % 2 == 0, "messages": messages})
    (folder / "logs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "reward.yaml").write_text(SPEC)
    with Store(folder / "store.duckdb") as store:
        ingest(store, [folder / "logs.jsonl"], workers=1)
        _build(store, folder)
    return folder


def _build(store, folder, name="d", **more):
    given = {
        "encoder": "hashing",
        "text_size": 4,
        "near_threshold": 1,
        "curriculum": True,
        "replay_fraction": 0.25,
    }
    config = BuildConfig(**{**given, **more})
    return build_dataset(store, folder / "reward.yaml", name=name, out=folder / "datasets", config=config)


def test_a_build_writes_the_stages_of_its_episodes(home):
    folder = home / "datasets" / "d"
    found = read_stages(folder)
    with Store(home / "store.duckdb", read_only=True) as store:
        told = store.con.sql(
            "SELECT e.native_id, d.stage, s.split FROM difficulty d JOIN splits s USING (dataset, episode_id) "
            "JOIN episodes e USING (episode_id) ORDER BY d.episode_id"
        ).fetchall()
    assert len(told) == 60
    assert all(stage == "abc".index(name[0]) + 1 for name, stage, _ in told)
    for split, labels in found["labels"].items():
        assert labels == [stage for _, stage, own in told if own == split]
        assert len(labels) == load_shards(folder, split).episode_count
    train = found["labels"]["train"]
    for item in found["stages"]:
        fresh = [place for place, stage in enumerate(train) if stage == item["stage"]]
        assert sorted({*fresh, *item["replayed"]}) == item["episodes"]
        assert all(train[place] < item["stage"] for place in item["replayed"])
        if item["stage"] > 1:
            assert abs(len(item["replayed"]) - 0.25 * len(item["episodes"])) <= 1


def test_a_stage_is_loaded_as_arrays(home):
    folder = home / "datasets" / "d"
    shard = load_shards(folder, "train")
    for item in read_stages(folder)["stages"]:
        arrays = load_stage(folder, item["stage"])
        check_arrays(arrays, shard.manifest.vocabulary, shard.manifest.observation_size)
        assert arrays.episode_count == len(item["episodes"])
        first = shard.episode(item["episodes"][0])
        assert np.array_equal(arrays.episode(0).observations, first.observations)
    with pytest.raises(UnknownName):
        load_stage(folder, 4)


def test_a_dataset_without_a_curriculum_says_how_to_get_one(home):
    with Store(home / "store.duckdb") as store:
        _build(store, home, "plain", curriculum=False)
    with pytest.raises(UsageError, match="--curriculum"):
        read_stages(home / "datasets" / "plain")
    assert stage_outcomes(load_shards(home / "datasets" / "plain", "test")) == ()


def test_outcomes_are_told_by_stage(home):
    shard = load_shards(home / "datasets" / "d", "train")
    labels = read_stages(home / "datasets" / "d")["labels"]["train"]
    for outcome in stage_outcomes(shard):
        own = [won for won, stage in zip(shard.success, labels, strict=True) if stage == outcome.stage]
        assert outcome == (outcome.stage, len(own), len(own), sum(own) / len(own))


def test_forgetting_an_episode_renumbers_the_stages(home):
    with Store(home / "store.duckdb") as store:
        _build(store, home, "f")
        before = read_stages(home / "datasets" / "f")
        ((gone,),) = store.con.sql(
            "SELECT min(episode_id) FROM splits WHERE dataset = 'f' AND split = 'train'"
        ).fetchall()
        forget(store, episode=gone)
        check_dataset(store, "f")
        after = read_stages(home / "datasets" / "f")
        assert not store.con.execute("SELECT 1 FROM difficulty WHERE episode_id = ?", [gone]).fetchall()
    assert after["labels"]["train"] == before["labels"]["train"][1:]
    for old, new in zip(before["stages"], after["stages"], strict=True):
        assert new["episodes"] == [place - 1 for place in old["episodes"] if place]


def test_the_frame_names_what_makes_an_episode_hard():
    frame = difficulty_frame([planted(2, 3, 1, 2)])
    assert frame.drop("episode_id").row(0) == (3, 1 + 2 + 2 + 2, 2, 3, 1, 2)
