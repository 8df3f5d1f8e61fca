"""Every law of a store and of a dataset finds the fault planted for it, with its place, and nothing in a sound store."""

from __future__ import annotations

import json

import pytest

from logforge.checks.pipeline import broken, check_store
from logforge.checks.store_laws import DATASET_LAWS, STORE_LAWS
from logforge.core.progress import silent
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.ingestion.pipeline import ingest
from logforge.schemas.errors import CheckFailed
from logforge.store.forgotten import key_of
from logforge.store.store import Store
from support.made_texts import prose

SPEC = "gamma: 0.9\nterms:\n  success: {when: success, value: 10, at: terminal}\n"


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A store of 20 tasks in two files that share an episode, with a torn line, a secret, near-duplicates, conflicts, a
    dataset and its credit."""
    folder = tmp_path_factory.mktemp("sound")
    rows = [_row(n) for n in range(20)]
    twin = json.loads(json.dumps(rows[3])) | {"id": "twin", "task_id": "twin"}
    twin["messages"][0]["content"] += " please"
    text = "".join(json.dumps(row) + "\n" for row in [*rows, twin])
    (folder / "logs").mkdir()
    (folder / "logs" / "a.jsonl").write_text(text + '{"torn": \n')
    (folder / "logs" / "b.jsonl").write_text(json.dumps(rows[0]) + "\n\n[]\n")
    (folder / "reward.yaml").write_text(SPEC)
    with Store(folder / "store.duckdb") as store:
        ingest(store, [folder / "logs"])
        config = BuildConfig(encoder="hashing", text_size=4)
        build_dataset(store, folder / "reward.yaml", name="d", out=folder / "out", config=config)
    return folder


def _row(n):
    call = {"id": "c1", "type": "function", "function": {"name": f"tool_{n % 2}", "arguments": "{}"}}
    opening = "the same question" if n < 6 else " ".join(prose(n, 60))
    result = "token ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8" if n == 7 else f"found {n % 3}"
    messages = [
        {"role": "user", "content": opening if n != 3 else " ".join(prose(99, 60))},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": result},
        {"role": "assistant", "content": "done"},
    ]
    return {"id": f"e{n}", "task_id": f"t{n}", "success": n % 3 != 0, "messages": messages}


@pytest.fixture(scope="module")
def opened(sound):
    with Store(sound / "store.duckdb") as store:
        yield store


@pytest.fixture
def store(opened):
    """The store to break: what a test does to it is undone."""
    opened.con.execute("BEGIN")
    yield opened
    opened.con.execute("ROLLBACK")


FIRST = "(SELECT min(episode_id) FROM steps)"
ONE = f"episode_id = {FIRST}"
COPY = "copies SELECT * REPLACE"
FAULTS = {
    "conservation": ["UPDATE sources SET records = records + 1 WHERE path LIKE '%a.jsonl'"],
    "kept_counted": ["UPDATE sources SET kept = kept - 1, duplicates = duplicates + 1 WHERE path LIKE '%a.jsonl'"],
    "quarantine_counted": ["DELETE FROM quarantine WHERE level = 'record'"],
    "skips_counted": ["UPDATE sources SET skipped = skipped + 1, records = records + 1"],
    "one_source": [
        "INSERT INTO sources SELECT * FROM sources LIMIT 1",
        "UPDATE episodes SET source_id = 'gone' WHERE " + ONE,
        "UPDATE quarantine SET source_id = 'gone'",
    ],
    "one_owner": [
        f"UPDATE copies SET owner = true WHERE {ONE}; INSERT INTO {COPY} ('x' AS source_id) FROM copies WHERE {ONE}",
        f"INSERT INTO episodes SELECT * FROM episodes WHERE {ONE}",
        f"DELETE FROM episodes WHERE {ONE}",
        f"UPDATE copies SET source_id = 'x' WHERE {ONE} AND owner",
    ],
    "copy_once": [f"INSERT INTO {COPY} (false AS owner) FROM copies WHERE {ONE}"],
    "no_owner": [f"UPDATE copies SET owner = false WHERE {ONE}"],
    "decision_once": ["UPDATE steps SET decision_key = 'k' WHERE step = 0"],
    "belongs": [
        "UPDATE messages SET episode_id = 'gone' WHERE " + ONE,
        "UPDATE steps SET episode_id = 'gone' WHERE " + ONE,
        "DELETE FROM messages WHERE " + ONE,
    ],
    "positions": [
        f"DELETE FROM messages WHERE position = 0 AND {ONE}",
        f"UPDATE messages SET position = 7 WHERE position = 3 AND {ONE}",
        f"INSERT INTO messages SELECT * FROM messages WHERE position = 1 AND {ONE}",
    ],
    "steps": [f"DELETE FROM steps WHERE step = 0 AND {ONE}", f"UPDATE steps SET step = 0 WHERE {ONE}"],
    "steps_in_order": [
        f"UPDATE steps SET step = 1 - step WHERE {ONE}",
        f"UPDATE steps SET position = 0 WHERE step = 0 AND {ONE}",
        f"UPDATE steps SET position = 99 WHERE step = 1 AND {ONE}",
    ],
    "no_future": [f"UPDATE steps SET result_position = position WHERE step = 0 AND {ONE}"],
    "result_text": [
        f"UPDATE steps SET result = 'another' WHERE step = 0 AND {ONE}",
        f"UPDATE steps SET result_position = 3 WHERE step = 0 AND {ONE}",
        f"UPDATE steps SET result_position = NULL WHERE step = 0 AND {ONE}",
        f"UPDATE steps SET result_position = 88 WHERE step = 0 AND {ONE}",
    ],
    "result_status": [
        f"UPDATE steps SET result_status = NULL WHERE step = 0 AND {ONE}",
        f"UPDATE steps SET action = 'x' WHERE step = 1 AND {ONE}",
    ],
    "pairing": [
        f"UPDATE steps SET tool_call_id = 'c1', position = CASE step WHEN 0 THEN 0 ELSE 1 END WHERE {ONE}",
    ],
    "stored_propensity": [
        f"UPDATE steps SET propensity = 1.5, propensity_kind = 'logged' WHERE {ONE}",
        f"UPDATE steps SET propensity = 0, propensity_kind = 'logged' WHERE {ONE}",
        f"UPDATE steps SET propensity = 'nan', propensity_kind = 'logged' WHERE {ONE}",
        f"UPDATE steps SET propensity_kind = 'known' WHERE {ONE}",
    ],
    "words": [f"UPDATE messages SET role = 'robot' WHERE {ONE}", f"UPDATE episodes SET ending = 'x' WHERE {ONE}"],
    "locators": [
        f"UPDATE messages SET locator = 'somewhere' WHERE {ONE}",
        f"UPDATE steps SET locator = NULL WHERE {ONE}",
        f"UPDATE episodes SET locator = '' WHERE {ONE}",
    ],
    "quarantine_rows": [
        "UPDATE quarantine SET rule = NULL",
        "UPDATE quarantine SET reason = ''",
        "UPDATE quarantine SET level = 'thing'",
        "UPDATE quarantine SET records = 0",
    ],
    "secret_rows": [
        "UPDATE secrets SET keyed_hash = 'ghp_plain'",
        "UPDATE secrets SET count = 0",
        "UPDATE secrets SET episode_id = 'gone'",
    ],
    "embedding_size": [
        "UPDATE embeddings SET vector = vector || '\\x00'::BLOB WHERE text_hash = (SELECT min(text_hash) FROM embeddings)",
        "UPDATE embeddings SET vector = ''::BLOB",
        "INSERT INTO embeddings SELECT * FROM embeddings LIMIT 1",
    ],
    "scorer_range": [
        "INSERT INTO scorer_results BY NAME SELECT 's' AS scorer, 'v' AS version, 't' AS text_hash, 1.5 AS value",
        "INSERT INTO scorer_results BY NAME SELECT 's' AS scorer, 'v' AS version, 't' AS text_hash, 'nan'::DOUBLE AS value",
        "INSERT INTO scorer_results BY NAME SELECT 's' AS scorer, 'v' AS version, 't' AS text_hash",
    ],
    "forgotten": [
        f"INSERT INTO forgotten BY NAME SELECT sha256('episode/' || {FIRST}) AS key, 'episode' AS kind, false AS pending",
        f"INSERT INTO forgotten BY NAME SELECT '{key_of('session', 'e5')}' AS key, 'session' AS kind, false AS pending",
        "INSERT INTO forgotten BY NAME SELECT 'x' AS key, 'episode' AS kind, true AS pending",
    ],
    "dataset_known": ["DELETE FROM datasets", "INSERT INTO datasets SELECT * FROM datasets"],
}  # fmt: skip
ROW = "(SELECT min(episode_id) FROM transitions)"
OF_DATASET = {
    "every_episode": [
        f"DELETE FROM transitions WHERE episode_id = {ROW}",
        f"DELETE FROM splits WHERE episode_id = {ROW}",
        "INSERT INTO quarantine BY NAME SELECT 'transition' AS level, 'd' AS dataset, 'r' AS rule, 'w' AS reason, 0 AS records, "
        f"{ROW} AS episode_id",
    ],
    "split_of_rows": [
        "UPDATE transitions SET split = CASE split WHEN 'test' THEN 'train' ELSE 'test' END WHERE episode_id = " + ROW
    ],
    "near_pairs": [
        "UPDATE near_duplicates SET similarity = 0.5",
        "UPDATE near_duplicates SET episode_a = episode_b, episode_b = episode_a",
        "UPDATE near_duplicates SET episode_b = 'gone'",
        "UPDATE splits SET group_key = 'other' WHERE episode_id IN (SELECT episode_a FROM near_duplicates)",
    ],
    "conflict_sides": [
        "UPDATE conflicts SET episode_a = 'gone'",
        "UPDATE conflicts SET action_b = 'other'",
        "UPDATE conflicts SET state_key = 'other' WHERE level <> 'near'",
        "UPDATE conflicts SET count_a = 0",
    ],
    "conflict_kinds": [
        "INSERT INTO conflicts SELECT * FROM conflicts",
        "UPDATE conflicts SET kind = CASE kind WHEN 'outcome' THEN 'contrast' ELSE 'outcome' END",
    ],
    "credit_rows": [
        "INSERT INTO credit BY NAME SELECT 'd' AS dataset, 'old' AS hash, 'gae' AS method, episode_id, step FROM transitions LIMIT 1",
        "INSERT INTO credit BY NAME SELECT 'd' AS dataset, hash, 'gae' AS method, 'gone' AS episode_id, 0 AS step FROM datasets",
    ],
}  # fmt: skip
PLANTED = [
    (rule, fault) for faults in (FAULTS, OF_DATASET) for rule, given in faults.items() for fault in given
]


def test_a_sound_store_breaks_no_law_and_holds_what_they_look_at(store):
    report = check_store(store)
    assert (report.sources, report.datasets[0].dataset, report.datasets[0].notes) == (2, "d", ())
    for table in ("quarantine", "secrets", "embeddings", "near_duplicates", "conflicts", "splits"):
        assert store.con.sql(f"SELECT count(*) FROM {table}").fetchall() > [(0,)], table
    assert store.con.sql("SELECT count(*) FROM copies WHERE NOT owner").fetchall() == [(1,)]


def test_every_law_has_a_fault():
    assert [law.rule for law in STORE_LAWS] == list(FAULTS)
    assert [law.rule for law in DATASET_LAWS] == list(OF_DATASET)


@pytest.mark.parametrize(("rule", "fault"), PLANTED)
def test_a_planted_fault_is_found(store, rule, fault):
    store.con.execute(fault)
    laws, values = (DATASET_LAWS, {"dataset": "d"}) if rule in OF_DATASET else (STORE_LAWS, {})
    found = [problem for problem in broken(store, laws, values, silent) if problem.rule == rule]
    assert found, f"{rule} does not see: {fault}"
    assert all(problem.path and problem.what and problem.remedy for problem in found)


def test_all_problems_come_at_once_with_each_remedy_told_once(store):
    store.con.execute(f"{FAULTS['conservation'][0]}; {FAULTS['no_future'][0]}; {OF_DATASET['near_pairs'][0]}")
    store.con.execute("UPDATE transitions SET weight = -1 WHERE step = 0")
    with pytest.raises(CheckFailed) as error:
        check_store(store)
    rules = {problem.rule for problem in error.value.failures}
    assert {"conservation", "no_future", "near_pairs", "arrays", "range"} <= rules
    assert error.value.remedy.count("build the dataset again (") == 1
    assert error.value.remedy.count("fresh store") == 1
    assert "conservation, no_future" in error.value.remedy
    assert all(row["remedy"] for row in error.value.as_dict()["failures"])


def test_a_rule_broken_many_times_is_counted(store):
    store.con.execute("UPDATE messages SET locator = 'nowhere'")
    with pytest.raises(CheckFailed) as error:
        check_store(store)
    found = [problem.what for problem in error.value.failures if problem.rule == "locators"]
    assert (len(found), found[-1]) == (21, "and 64 more")
