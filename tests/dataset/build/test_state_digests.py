"""A build that is like an earlier dataset makes the states of new and changed episodes alone, and gives the very files that it gives
without the earlier one's states."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logforge.dataset.build import state_digests
from logforge.dataset.build.earlier_dataset import earlier_reduction, earlier_vocabulary
from logforge.dataset.build.known_states import KnownStates
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.dataset.states.config import StateConfig
from logforge.forgetting.pipeline import forget
from logforge.ingestion.pipeline import ingest
from logforge.store.store import Store
from logforge.texts.hashing import HashingEncoder
from support.thoroughness import enough

SPEC = "gamma: 0.9\nterms:\n  success: {when: success, value: 10, at: terminal}\n"
CONFIG = BuildConfig(encoder="hashing", text_size=4)
COPIES = replace(CONFIG, augment=("paraphrase", "tool_failure"), retryable=("lookup",))
SIZE = 14


class Home:
    """A store of SIZE episodes of two tools, one a task, and one of a third tool, with what was built of it."""

    def __init__(self, folder, conversation, write_jsonl):
        rows = [conversation(f"item {n}", ("lookup", "search")[n % 2], f"result {n}") for n in range(SIZE)]
        rows.append(conversation("odd", "audit", "seen"))
        for n, row in enumerate(rows):
            row["success"] = n % 3 != 0
        self.folder = folder
        (folder / "reward.yaml").write_text(SPEC)
        write_jsonl(folder / "logs" / "a.jsonl", rows)
        self.store = Store(folder / "s.duckdb")
        self.store.con.execute("SET threads = 1")
        ingest(self.store, [folder / "logs"])

    def build(self, config=CONFIG, name="first", like=None, **more):
        if like is not None:
            more |= {
                "vocabulary": earlier_vocabulary(like.path),
                "reduction": earlier_reduction(like.path, "hashing"),
            }
        spec = self.folder / "reward.yaml"
        return build_dataset(self.store, spec, name=name, out=self.folder / "out", config=config, **more)

    def both(self, config=CONFIG, *, like):
        """The report of a build like an earlier dataset; it must be the same as one that makes all states."""
        with patch.object(KnownStates, "find", return_value=None):
            made = self.build(config, "next", like)
        expected = files(made), self.rows("next")
        self.drop("next")
        again = self.build(config, "next", like)
        assert made.states == "made"
        assert (files(again), self.rows("next")) == expected
        self.drop("next")
        return again

    def rows(self, name):
        return self.store.con.execute(
            "SELECT * FROM transitions WHERE dataset = ? ORDER BY episode_id, step", [name]
        ).fetchall()

    def drop(self, name):
        """So that the dataset lends nothing."""
        for table in ("datasets", "transitions", "state_digests"):
            self.store.con.execute(f"DELETE FROM {table} WHERE dataset = ?", [name])


def files(report):
    folder = Path(report.path)
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def home(tmp_path, conversation, write_jsonl):
    made = Home(tmp_path, conversation, write_jsonl)
    yield made
    made.store.close()


def without(*tasks):
    told = ", ".join(f"'{task}'" for task in tasks)
    return (f"task_id IN ({told})",) if tasks else ()


def change(store, tasks):
    """Other words of the user in the episodes of these tasks."""
    store.con.execute(
        "UPDATE messages SET content = content || ', today' WHERE role = 'user' AND episode_id IN "
        "(SELECT episode_id FROM episodes WHERE task_id IN (SELECT unnest(?)))",
        [list(tasks)],
    )


@pytest.mark.parametrize(
    "config",
    [COPIES, replace(CONFIG, part_bytes=4096, hold_out=without("item 2"))],
    ids=["copies", "parts and a held-out split"],
)
def test_one_more_log_has_its_own_states_made_and_no_other(config, home, conversation, write_jsonl):
    earlier = home.build(config)
    write_jsonl(home.folder / "logs" / "b.jsonl", [conversation("item 1", "lookup", "another result")])
    ingest(home.store, [home.folder / "logs"])
    again = home.both(config, like=earlier)
    found = again.state_episodes
    assert again.states == "extended"
    assert found["read"] == sum(earlier.state_episodes.values())
    assert 1 <= found["made"] <= 1 + len(config.augment)
    told = f"states: extended: of {found['read']} episodes read from a dataset of the store, of {found['made']} made"
    assert told in again.render()


_TASKS = [f"item {n}" for n in range(SIZE)]
_SOME = st.sets(st.sampled_from(_TASKS), max_size=5)


@settings(
    max_examples=enough(2, 10),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(
    out_before=_SOME,
    out_now=_SOME,
    changed=_SOME,
    config=st.sampled_from([CONFIG, COPIES]),
    seed=st.integers(0, 2),
)
def test_whatever_was_added_changed_or_removed_the_files_are_those_of_a_build_without_reuse(
    home, out_before, out_now, changed, config, seed
):
    earlier = home.build(replace(config, exclude_where=without(*sorted(out_before))))
    change(home.store, changed)
    later = replace(config, exclude_where=without(*sorted(out_now)), seed=seed)
    found = home.both(later, like=earlier).state_episodes
    new = (set(_TASKS) - out_now) & (changed | out_before)
    assert found["made"] >= len(new)
    if config is CONFIG:
        assert found == {"read": SIZE + 1 - len(out_now) - len(new), "made": len(new)}


def test_what_decides_every_state_has_all_made(home):
    earlier = home.build()
    changes = [
        {"state": StateConfig(window_turns=2)},
        {"state": StateConfig(history=2)},
        {"state": StateConfig(blocks=("task", "history", "mask"))},
        {"action_aliases": {"lookup": "search"}},
        {"exclude_where": without("odd")},  # masks of logs that do not say are inferred from what is called
    ]
    for change in changes:
        assert home.build(replace(CONFIG, **change), "next", earlier).states == "made", change


def test_states_of_other_code_packages_or_encoders_are_not_taken(home):
    earlier = home.build()
    reduction = earlier_reduction(earlier.path, "hashing")
    for owner, name, value in (
        (state_digests, "STATES_VERSION", 99),
        (state_digests, "package_versions", lambda: {"numpy": "0"}),
        (HashingEncoder, "revision", "another"),
    ):
        with patch.object(owner, name, value):
            assert home.build(name="next", reduction=reduction).states == "made", name


def test_what_decides_no_state_has_none_made(home):
    earlier = home.build()
    others = replace(
        CONFIG, seed=1, text_size=3, action_level="tool+template", epsilon=0.3, min_action_count=9
    )
    again = home.both(others, like=earlier)
    assert again.state_episodes == {"read": SIZE + 1, "made": 0}
    assert "made" not in again.states
    assert again.splits != earlier.splits, "rows came from other splits than their own"


def test_a_tool_that_is_new_widens_every_state(home, conversation, write_jsonl):
    earlier = home.build()
    write_jsonl(home.folder / "logs" / "b.jsonl", [conversation("item 99", "refund", "done")])
    ingest(home.store, [home.folder / "logs"])
    assert home.both(like=earlier).state_episodes == {"read": 0, "made": SIZE + 2}


def test_tools_of_another_format_leave_these_masks_as_they_are(home, write_jsonl):
    """What masks are inferred from goes by format: a log of another one that uses known tools changes no state of these."""
    earlier = home.build()
    home.store.con.execute("UPDATE episodes SET format = 'another' WHERE task_id = 'item 4'")
    assert home.both(like=earlier).state_episodes == {"read": SIZE, "made": 1}


def test_a_dataset_of_another_pca_lends_nothing(home):
    earlier = home.build()
    other = home.build(replace(CONFIG, exclude_where=without("item 1", "item 5", "item 6")), "other")
    assert (Path(other.path) / "encoder/pca.npz").read_bytes() != (
        Path(earlier.path) / "encoder/pca.npz"
    ).read_bytes()
    home.drop("first")
    assert home.build(name="next", like=earlier).states == "made"


def test_the_dataset_with_most_of_the_episodes_lends(home):
    earlier = home.build()
    fewer = replace(CONFIG, exclude_where=without("item 1", "item 5"))
    home.build(fewer, "a", like=earlier)
    home.drop("first")
    assert home.build(name="next", like=earlier).state_episodes == {"read": SIZE - 1, "made": 2}
    home.drop("next")
    home.build(replace(CONFIG, exclude_where=without("item 1")), "b", like=earlier)
    assert home.both(like=earlier).state_episodes == {"read": SIZE, "made": 1}


def test_a_forgotten_episode_leaves_no_digest_and_the_others_are_read(home):
    earlier = home.build(COPIES)
    ((gone,),) = home.store.con.sql("SELECT episode_id FROM episodes WHERE task_id = 'item 4'").fetchall()
    copies = "SELECT DISTINCT episode_id FROM transitions WHERE starts_with(parent_id, ?) OR episode_id = ?"
    taken = [row[0] for row in home.store.con.execute(copies, [gone, gone]).fetchall()]
    forget(home.store, episode=gone)
    digests = {row[0] for row in home.store.con.sql("SELECT episode_id FROM state_digests").fetchall()}
    assert digests.isdisjoint(taken)
    assert home.both(COPIES, like=earlier).state_episodes == {"read": len(digests), "made": 0}


def test_rounded_and_damaged_observations_are_not_read(home):
    earlier = home.build(replace(CONFIG, observation_dtype="float16"))
    assert home.build(name="next", like=earlier).states == "made"
    home.drop("next")
    earlier = home.build()
    damaged = Path(earlier.path) / "validation" / "observations.npy"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert home.build(name="next", like=earlier).states == "made"
