"""Contrasts as pairs: both sides from one split, with an interval that small samples cannot fool."""

import json

import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from logforge.cli.commands import main
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.exports.contrasts import _half_width, export_pairs, pairs_of
from logforge.ingestion.pipeline import ingest
from logforge.schemas.errors import Mismatch, UnknownName, UsageError
from logforge.store.store import Store

SPEC = "gamma: 1.0\nterms: {success: {when: success, value: 10, at: terminal}, step: {value: -1}}\n"
SPLITS = ("train", "validation", "test")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """In one task, `search` works in 9 trials of 10 and `lookup` in 1 of 10; in three others, one trial of each."""
    home = tmp_path_factory.mktemp("pairs")
    rows = []
    for task, trials in (("often", 10), ("rarely", 1), ("seldom", 1), ("hardly", 1)):
        for tool in ("search", "lookup"):
            for n in range(trials):
                works = (n > 0 or trials == 1) if tool == "search" else (n == 0 and trials > 1)
                rows.append(_row(task, tool, n, works))
    (home / "logs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (home / "reward.yaml").write_text(SPEC)
    with Store(home / "store.duckdb") as store:
        ingest(store, [home / "logs.jsonl"], workers=1)
        config = BuildConfig(encoder="hashing", text_size=4, near_threshold=1, seed=5)
        build_dataset(store, home / "reward.yaml", name="d", out=home, config=config)
    return home


def _row(task, tool, n, works):
    call = {
        "id": "c",
        "type": "function",
        "function": {"name": tool, "arguments": json.dumps({"q": task, "n": n})},
    }
    messages = [
        {"role": "user", "content": f"please do {task}"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": f"found by {tool} in trial {n}"},
        {"role": "assistant", "content": f"{task} done"},
    ]
    return {"id": f"{task} {tool} {n}", "task_id": task, "success": works, "messages": messages}


def split_holding(store, task):
    return store.con.sql(
        f"SELECT DISTINCT split FROM splits JOIN episodes USING (episode_id) WHERE task_id = '{task}'"
    ).fetchall()[0][0]


def test_a_certain_pair_says_everything_about_both_sides(built, tmp_path):
    with Store(built / "store.duckdb", read_only=True) as store:
        split = split_holding(store, "often")
        report = export_pairs(store, built / "d", tmp_path / "pairs.jsonl", split)
        rows = store.con.sql(
            "SELECT episode_id, step, native_id FROM steps JOIN episodes USING (episode_id)"
        ).fetchall()
    named = {(episode, step): name for episode, step, name in rows}
    [pair] = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert report.pairs == 1
    assert (pair["level"], pair["certain"]) == ("exact", True)
    assert pair["prompt"] == [{"role": "user", "content": "please do often"}]
    chosen, rejected = pair["chosen"], pair["rejected"]
    assert (chosen["action"], rejected["action"]) == ("search", "lookup")
    assert (chosen["episodes"], rejected["episodes"]) == (10, 10)
    assert (chosen["mean_return"], rejected["mean_return"]) == pytest.approx((7.0, -1.0))
    assert (chosen["success_rate"], rejected["success_rate"]) == pytest.approx((0.9, 0.1))
    assert json.loads(chosen["arguments"])["q"] == "often"
    assert chosen["locator"].startswith("logs.jsonl:")
    assert named[chosen["episode_id"], chosen["step"]].startswith("often search")
    low, high = pair["interval"]
    wins, losses = [8.0] * 9 + [-2.0], [-2.0] * 9 + [8.0]
    expected = stats.ttest_ind(wins, losses, equal_var=False).confidence_interval(0.95)
    assert (low, high) == pytest.approx((expected.low, expected.high))
    assert pair["gap"] == pytest.approx(8.0)


def test_both_sides_lie_in_the_split_and_its_pairs_in_no_other(built):
    with Store(built / "store.duckdb", read_only=True) as store:
        tasks = {split: set() for split in SPLITS}
        for split in SPLITS:
            for row in pairs_of(store, "d", split).rows(named=True):
                for side in "ab":
                    found = store.con.sql(
                        "SELECT s.split, e.task_id FROM splits s JOIN episodes e USING (episode_id) WHERE episode_id = ?",
                        params=[row[f"episode_{side}"]],
                    ).fetchall()
                    tasks[found[0][0]].add(found[0][1])
                    assert found[0][0] == split
        total = sum(map(len, tasks.values()))
    assert total == len(set().union(*tasks.values())) == 4


def test_one_trial_a_side_has_no_interval_and_is_written_only_when_asked_for(built, tmp_path):
    with Store(built / "store.duckdb", read_only=True) as store:
        split = next(
            s
            for t in ("rarely", "seldom", "hardly")
            if (s := split_holding(store, t)) != split_holding(store, "often")
        )
        with pytest.raises(UsageError, match="--uncertain"):
            export_pairs(store, built / "d", tmp_path / "pairs.jsonl", split)
        report = export_pairs(store, built / "d", tmp_path / "pairs.jsonl", split, uncertain=True)
    pairs = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert report.pairs == len(pairs) > 0
    assert {(pair["interval"], pair["certain"]) for pair in pairs} == {(None, False)}


def test_the_command_line_writes_pairs_and_names_its_formats(built, tmp_path, monkeypatch):
    monkeypatch.chdir(built)
    run = CliRunner().invoke
    with Store(built / "store.duckdb", read_only=True) as store:
        split = split_holding(store, "often")
    args = ["export", "d", "--store", "store.duckdb", "--out", str(tmp_path / "p.jsonl"), "--split", split]
    made = run(main, [*args, "--format", "preference-pairs", "--json"])
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["rows"] == len((tmp_path / "p.jsonl").read_text().splitlines())
    wrong = run(main, [*args, "--format", "preference"])
    assert wrong.exit_code == 2
    assert "did you mean 'preference-pairs'?" in wrong.stderr


def test_a_store_without_the_dataset_is_refused(built, tmp_path):
    with Store(tmp_path / "other.duckdb") as other:
        with pytest.raises(Mismatch, match="no such dataset"):
            export_pairs(other, built / "d", tmp_path / "pairs.jsonl")
        with pytest.raises(UnknownName):
            export_pairs(other, built / "d", tmp_path / "pairs.jsonl", "dev")


samples = st.lists(st.integers(-100, 100).map(lambda n: n / 8), min_size=2, max_size=12, unique=True)


@settings(max_examples=80, deadline=None)
@given(samples, samples)
def test_the_interval_is_welchs(one, two):
    a, b = (pl.Series(values).var() / len(values) for values in (one, two))
    half = _half_width(a, b, len(one), len(two), stats.t.ppf)
    expected = stats.ttest_ind(one, two, equal_var=False).confidence_interval(0.95)
    assert half == pytest.approx((expected.high - expected.low) / 2, rel=1e-6)
    assert _half_width(None, b, 1, len(two), stats.t.ppf) is None
    assert _half_width(0.0, 0.0, 2, 2, stats.t.ppf) == 0.0
