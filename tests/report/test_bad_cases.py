"""The planted failing topic is the first cluster, and what is written about it builds the next dataset."""

import json

import pytest
import yaml
from click.testing import CliRunner

from logforge.cli.commands import main
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.dataset.weights.files import load_weights
from logforge.ingestion.pipeline import ingest
from logforge.report.bad_case_files import RULES, TOPIC_SET, UP_WEIGHT, write_bad_cases
from logforge.report.bad_case_search import bad_cases, chosen
from logforge.schemas.errors import CheckFailed, UnknownName, UsageError
from logforge.store.store import Store

SPEC = """
gamma: 1.0
terms:
  success: {when: success, value: 10, at: terminal}
  comfort: {when: "action = 'console'", value: 9}
"""
PASSWORD = ("how do I change my password", "please change my password", "I must change the password")
COUPON = ("where do I redeem the coupon", "redeem my coupon please", "the coupon cannot be redeemed")
INVOICE = ("send the invoice of march", "the march invoice is wrong", "need the invoice for march")


def episode(conversation, number, text, tool, success):
    row = conversation(f"{text} {number}", tool, success=success)
    row["messages"][0]["content"] = f"{text} ({number})"
    return {**row, "id": f"{tool} {number}", "task_id": f"t{number}"}


@pytest.fixture
def home(tmp_path, conversation, write_jsonl):
    """A topic that fails dearly 6 times of 8, one that fails cheaply 12 times of 14, and one that goes well."""
    rows = []
    for texts, count, failures, tool in (
        (PASSWORD, 8, 6, "guess"),
        (COUPON, 14, 12, "console"),
        (INVOICE, 12, 1, "fetch"),
    ):
        for n in range(count):
            failed = n < failures
            rows.append(
                episode(conversation, len(rows), texts[n % 3], tool if failed else "lookup", not failed)
            )
    write_jsonl(tmp_path / "logs.jsonl", rows)
    (tmp_path / "reward.yaml").write_text(SPEC)
    with Store(tmp_path / "store.duckdb") as store:
        ingest(store, [tmp_path / "logs.jsonl"], workers=1)
    build(tmp_path)
    return tmp_path


def build(home, name="d", **more):
    given = {"encoder": "hashing", "text_size": 4, "near_threshold": 1, "fractions": (1.0, 0.0, 0.0)}
    with Store(home / "store.duckdb") as store:
        build_dataset(
            store,
            home / "reward.yaml",
            name=name,
            out=home / "datasets",
            config=BuildConfig(**{**given, **more}),
        )


def mined(home, name="d", **more):
    with Store(home / "store.duckdb", read_only=True) as store:
        return bad_cases(store, name, **more)


def test_the_planted_failing_topic_is_the_first_cluster(home):
    found = mined(home)
    first, second, *_ = found.cases
    assert found.failures == 19
    assert {"change", "password"} <= set(first.topic)
    assert (first.rank, first.count, first.mean_return, first.alternative, first.alternative_from) == (
        1,
        6,
        0.0,
        10.0,
        "topic",
    )
    assert (first.regret, first.cost) == (10.0, 60.0)
    assert "coupon" in second.topic
    assert (second.count, second.cost) == (12, 12.0), "twice as many failures that cost little"
    assert first.openings == (("guess", 6),)
    assert first.better == (("lookup", 2),)
    assert all("password" in example.text and "logs.jsonl:" in example.locator for example in first.examples)
    assert sum(case.count for case in found.cases) == 19
    costs = [case.cost for case in found.cases]
    assert costs == sorted(costs, reverse=True)


def test_the_same_dataset_gives_the_same_clusters(home):
    assert mined(home) == mined(home)


def test_a_topic_without_a_success_is_held_against_the_others(home):
    with Store(home / "store.duckdb") as store:
        store.con.execute("UPDATE episodes SET success = FALSE WHERE task LIKE '%password%'")
    build(home)
    first = mined(home).cases[0]
    assert (first.count, first.alternative, first.alternative_from) == (8, 10.0, "elsewhere")
    assert first.alternatives == ()
    with Store(home / "store.duckdb") as store:
        store.con.execute("UPDATE episodes SET success = FALSE")
    build(home)
    assert {case.alternative_from for case in mined(home).cases} == {"nothing"}


def test_without_failures_there_is_nothing_to_tell(home):
    with Store(home / "store.duckdb") as store:
        store.con.execute("UPDATE episodes SET success = TRUE")
    build(home)
    assert mined(home).cases == ()
    assert "no failed episode" in mined(home).render()


def test_held_out_failures_are_not_looked_at(home):
    build(home, "half", fractions=(0.5, 0.25, 0.25))
    with Store(home / "store.duckdb", read_only=True) as store:
        train = {
            row[0]
            for row in store.con.sql(
                "SELECT episode_id FROM splits WHERE dataset = 'half' AND split = 'train'"
            ).fetchall()
        }
    for case in mined(home, "half").cases:
        assert {*case.episodes, *case.alternatives} <= train


def test_what_is_written_builds_the_next_dataset_with_these_episodes_weighed_up(home):
    found = write_bad_cases(mined(home), home / "bad", (1,), 3.0)
    assert [path.rsplit("/", 1)[1] for path in found.written] == [TOPIC_SET, RULES, UP_WEIGHT]
    members = [json.loads(line) for line in (home / "bad" / TOPIC_SET).read_text().splitlines()]
    assert [item["role"] for item in members] == ["failure"] * 6 + ["alternative"] * 2
    named = {item["episode_id"] for item in members}
    assert yaml.safe_load((home / "bad" / UP_WEIGHT).read_text()) == {"episodes": dict.fromkeys(named, 3.0)}
    build(home, "next", weights=load_weights([home / "bad" / UP_WEIGHT]))
    with Store(home / "store.duckdb", read_only=True) as store:
        weights = store.con.sql(
            "SELECT episode_id, weight FROM transitions WHERE dataset = 'next'"
        ).fetchall()
    assert {name for name, weight in weights if weight == 3.0} == named
    assert {weight for name, weight in weights if name not in named} == {1.0}


def test_the_rule_stub_names_what_fails_and_what_does_better_and_is_inert(home):
    with Store(home / "store.duckdb") as store:
        store.con.execute(
            "UPDATE episodes SET task = '<script>password</script> [x](y) change' WHERE task LIKE '%password%'"
        )
    write_bad_cases(mined(home), home / "bad")
    text = (home / "bad" / RULES).read_text()
    assert "failures begin with: guess (6)" in text
    assert "successes of the topic begin with: lookup (2)" in text
    assert "<script>" not in text
    assert "](" not in text


def test_wrong_ranks_factors_and_folders_are_refused(home):
    found = mined(home)
    with pytest.raises(UsageError, match="no cluster 99"):
        chosen(found, [99])
    with pytest.raises(UsageError, match="factor"):
        write_bad_cases(found, home / "bad", (1,), -1.0)
    with pytest.raises(UsageError, match="not bad cases"):
        write_bad_cases(found, home / "datasets")
    with pytest.raises(UnknownName):
        mined(home, "nothing")


def test_a_dataset_whose_folder_is_gone_is_refused(home):
    (home / "datasets" / "d" / "manifest.json").unlink()
    with pytest.raises(CheckFailed, match="folder"):
        mined(home)


def test_the_command_line_mines_writes_and_builds(home, monkeypatch):
    monkeypatch.chdir(home)
    run = CliRunner().invoke
    store = ["--store", "store.duckdb"]
    told = run(main, ["badcases", "d", *store, "--out", "bad", "--cluster", "1", "--cluster", "2", "--json"])
    assert told.exit_code == 0, told.output
    data = json.loads(told.stdout)
    assert [case["rank"] for case in data["cases"]][:2] == [1, 2]
    assert len(data["written"]) == 3
    shown = run(main, ["badcases", "d", *store, "--limit", "1"])
    assert "password" in shown.stdout
    assert "coupon" not in shown.stdout
    built = run(
        main,
        [
            "build-dataset",
            "--reward",
            "reward.yaml",
            *store,
            "--encoder",
            "hashing",
            "--name",
            "n",
            "--weights",
            "bad/up-weight.yaml",
            "--curriculum",
            "--json",
        ],
    )
    assert built.exit_code == 0, built.output
    told = json.loads(built.stdout)["weight_parts"]
    assert [part["part"] for part in told] == ["episode"]
    assert told[0]["mean"] == 2.0
    (home / "wrong.yaml").write_text("no_progres: 1\n")
    assert (
        run(main, ["build-dataset", "--reward", "reward.yaml", *store, "--weights", "wrong.yaml"]).exit_code
        == 2
    )
