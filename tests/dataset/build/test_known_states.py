"""Building with states that a dataset has already gives the very files of a build from nothing, and happens only where they fit."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logforge.dataset.build import state_digests
from logforge.dataset.build.earlier_dataset import earlier_reduction, earlier_vocabulary
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.dataset.states.builder import StateBuilder
from logforge.dataset.states.config import StateConfig
from logforge.forgetting.pipeline import forget
from logforge.ingestion.pipeline import ingest
from logforge.store.store import Store
from logforge.texts.hashing import HashingEncoder
from support.thoroughness import enough

FIRST = """
gamma: 0.9
terms:
  success: {when: success, value: 10, at: terminal}
"""
SECOND = """
gamma: 0.99
terms:
  success: {when: success, value: 1, at: terminal}
  step_cost: {value: -0.1}
"""
CONFIG = BuildConfig(encoder="hashing", text_size=4)
COPIES = replace(CONFIG, augment=("paraphrase", "tool_failure"), retryable=("lookup",))


@pytest.fixture
def logs(tmp_path, conversation, write_jsonl):
    """Sixteen episodes with texts of their own, two tools, and failures."""
    rows = [conversation(f"item {n}", ("lookup", "search")[n % 2], f"result {n}") for n in range(16)]
    for n, row in enumerate(rows):
        row["success"] = n % 3 != 0
    write_jsonl(tmp_path / "logs" / "a.jsonl", rows)
    return tmp_path / "logs"


@pytest.fixture
def stores(tmp_path, logs):
    """A new store with the logs for each name, in a folder of its own beside them."""
    made = []

    def filled(name):
        store = Store(tmp_path / f"{name}.duckdb")
        made.append(store)
        ingest(store, [logs])
        return store

    yield filled
    for store in made:
        store.close()


@pytest.fixture
def build(tmp_path):
    def built(store, spec, config=CONFIG, name="d", **more):
        (tmp_path / "reward.yaml").write_text(spec)
        out = tmp_path / store.path.stem
        return build_dataset(store, tmp_path / "reward.yaml", name=name, out=out, config=config, **more)

    return built


def files(report):
    folder = Path(report.path)
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def rows(store):
    return store.con.sql("SELECT * FROM transitions ORDER BY dataset, episode_id, step").fetchall()


def same(store, report, other, expected):
    assert expected.states == "made"
    assert files(report) == files(expected)
    assert rows(store) == rows(other)


@pytest.mark.parametrize(
    "config",
    [
        replace(COPIES, hold_out=("task_id IN ('item 3', 'item 5')",)),
        replace(CONFIG, part_bytes=4096, action_aliases={"lookup": "search"}, action_level="tool+template"),
    ],
    ids=["copies, held out", "parts, aliases, templates"],
)
def test_another_spec_makes_no_state_and_gives_the_files_of_a_build_from_nothing(
    config, stores, build, monkeypatch
):
    store, fresh = stores("s"), stores("fresh")
    assert build(store, FIRST, config).states == "made"
    with monkeypatch.context() as forbidden:
        forbidden.setattr(StateBuilder, "vectors", _counted(StateBuilder.vectors, seen := []))
        again = build(store, SECOND, config)
    assert again.states == "reused"
    assert sum(seen) <= 20, "no vectors but those of golden states"
    same(store, again, fresh, build(fresh, SECOND, config))


def _counted(real, seen):
    def vectors(self, states, lookup):
        seen.append(len(states))
        return real(self, states, lookup)

    return vectors


def test_what_changes_a_state_has_all_made_anew(stores, build):
    store = stores("s")
    build(store, FIRST, COPIES, name="kept")
    for changed in (
        {"state": StateConfig(history=2)},
        {"text_size": 3},
        {"seed": 1},
        {"augment": ("paraphrase",)},
        {"min_action_count": 100},
    ):
        assert build(store, FIRST, replace(COPIES, **changed)).states == "made", changed
    assert build(store, SECOND, COPIES).states == "reused", "of the one that is kept"


def test_states_of_other_code_or_another_encoder_are_not_taken(stores, build, monkeypatch):
    store = stores("s")
    build(store, FIRST, name="kept")
    for owner, name, value in (
        (state_digests, "STATES_VERSION", 3),
        (state_digests, "package_versions", lambda: {"numpy": "0"}),
        (HashingEncoder, "revision", "another"),
    ):
        with monkeypatch.context() as other:
            other.setattr(owner, name, value)
            assert build(store, FIRST).states == "made", name


def test_one_more_log_is_another_list_of_episodes(stores, build, logs, conversation, write_jsonl):
    store = stores("s")
    build(store, FIRST)
    write_jsonl(logs / "b.jsonl", [conversation("a new item", result="its result")])
    ingest(store, [logs])
    again, fresh = build(store, FIRST), stores("fresh")
    assert again.states == "made"
    same(store, again, fresh, build(fresh, FIRST))


def test_states_of_an_episode_that_was_forgotten_are_made_without_it(stores, build):
    store = stores("s")
    build(store, FIRST)
    ((gone,),) = store.con.sql("SELECT min(episode_id) FROM episodes").fetchall()
    forget(store, episode=gone)
    again = build(store, FIRST)
    assert again.states == "made"
    assert build(store, SECOND).states == "reused"


def test_a_dataset_whose_episodes_a_policy_has_taken_out_lends_those_that_are_left(
    stores, build, logs, conversation, write_jsonl
):
    torn = [conversation("the same thing", success=n % 2 == 0) | {"id": f"torn {n}"} for n in range(4)]
    write_jsonl(logs / "torn.jsonl", torn)
    store, fresh = stores("s"), stores("fresh")
    filtering = replace(CONFIG, conflicts=("filter",))
    taken = build(store, FIRST, filtering).left_out
    assert taken, "else there is nothing to see"
    again = build(store, SECOND)
    assert again.states == "extended"
    assert again.state_episodes == {"read": 20 - sum(taken.values()), "made": sum(taken.values())}
    same(store, again, fresh, build(fresh, SECOND))


@pytest.mark.parametrize("file", ["train/observations.npy", "encoder/pca.npz", "manifest.json"])
def test_damaged_or_missing_files_are_not_read(file, stores, build):
    store, fresh = stores("s"), stores("fresh")
    damaged = Path(build(store, FIRST, name="kept").path) / file
    whole = damaged.read_bytes()
    expected = build(fresh, SECOND)
    for data in (whole[:-10] + bytes([whole[-10] ^ 1]) + whole[-9:], whole[: len(whole) // 2], None):
        damaged.write_bytes(data or b"")
        if data is None:
            damaged.unlink()
        again = build(store, SECOND)
        assert again.states == "made"
        assert files(again) == files(expected)
        store.con.execute("DELETE FROM datasets WHERE dataset = 'd'")


def test_rounded_observations_are_not_read_and_whole_ones_are_rounded(stores, build):
    store, fresh = stores("s"), stores("fresh")
    rounded = replace(CONFIG, observation_dtype="float16")
    build(store, FIRST, rounded)
    assert build(store, FIRST).states == "made"
    again = build(store, SECOND, rounded)
    assert again.states == "reused"
    same(store, again, fresh, build(fresh, SECOND, rounded))


def test_any_dataset_of_the_store_will_do_and_a_given_pca_counts(
    stores, build, logs, conversation, write_jsonl
):
    store = stores("s")
    first = build(store, FIRST, name="first")
    like = {
        "vocabulary": earlier_vocabulary(first.path),
        "reduction": earlier_reduction(first.path, "hashing"),
    }
    assert build(store, SECOND, name="second", **like).states == "reused", "the PCA given is the one fitted"
    write_jsonl(logs / "b.jsonl", [conversation("a new item", result="its result")])
    ingest(store, [logs])
    assert build(store, FIRST, name="third", **like).state_episodes == {"read": 16, "made": 1}
    assert build(store, SECOND, name="fourth").states == "made", "the third's PCA is not the one to be fitted"
    assert build(store, SECOND, name="fifth", **like).states == "reused"


_CONFIGS = st.builds(
    replace,
    st.sampled_from([CONFIG, COPIES]),
    seed=st.integers(0, 1),
    state=st.sampled_from([StateConfig(), StateConfig(blocks=("task", "history", "mask"))]),
    observation_dtype=st.sampled_from(["float32", "float16"]),
)


@settings(
    max_examples=enough(2, 10),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(st.lists(st.tuples(st.sampled_from([FIRST, SECOND]), _CONFIGS), min_size=3, max_size=3))
def test_whatever_was_built_before_the_files_are_those_of_a_build_from_nothing(
    stores, build, tmp_path, built
):
    for name in ("s", "fresh"):
        (tmp_path / f"{name}.duckdb").unlink(missing_ok=True)
    store, fresh = stores("s"), stores("fresh")
    for spec, config in built:
        last = build(store, spec, config)
    same(store, last, fresh, build(fresh, *built[-1]))
    store.close()
    fresh.close()
