"""Episodes left out by a condition: `build-dataset --exclude-where`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from logforge.cli.commands import main
from logforge.core.sql import text_literal
from logforge.dataset.build.exclusion import excluded, read_conditions
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.ingestion.pipeline import ingest
from logforge.report.page.context import Context
from logforge.report.sections.drift import Suspect, measure
from logforge.schemas.errors import SpecError
from logforge.shards.reader import read_manifest

SPEC = "gamma: 0.9\nterms:\n  success: {when: success, value: 1, at: terminal}\n"
DAY = datetime(2026, 1, 5, tzinfo=UTC)


@pytest.fixture
def filled(store, conversation, write_jsonl, tmp_path):
    """Ten days of an episode an hour; at night, from 1 to 3, nothing works."""
    rows = []
    for n in range(240):
        start = DAY + timedelta(hours=n)
        night = start.hour in (1, 2, 3)
        row = conversation(f"task {n}", success=not night, model="m'\"$x" if n % 2 else "plain")
        row["messages"][0]["timestamp"] = start.timestamp()
        rows.append(row)
    ingest(store, [write_jsonl(tmp_path / "logs" / "a.jsonl", rows)])
    (tmp_path / "reward.yaml").write_text(SPEC)
    return store


def build(store, *conditions, name="d"):
    folder = store.path.parent
    config = BuildConfig(encoder="hashing", text_size=4, exclude_where=conditions)
    return build_dataset(store, folder / "reward.yaml", name=name, out=folder / "out", config=config)


def chosen(store, *conditions):
    return excluded(store, read_conditions(conditions))


def test_the_condition_that_the_report_names_is_usable_as_it_stands(filled):
    build(filled)
    section = measure(Context(filled, "d"))
    suspects = [Suspect(*row) for row in section.tables[0].rows]
    (hour,) = [suspect.condition for suspect in suspects if suspect.kind == "hour"]
    assert f"build-dataset --exclude-where '{hour}'" in section.findings[0].text
    assert hour == "hour(started_at) IN (1, 2, 3)"
    built = build(filled, hour)
    assert built.left_out == {f"excluded where {hour}": 30}
    left = filled.con.sql(
        "SELECT count(*), count(*) FILTER (success) FROM transitions WHERE step = 0"
    ).fetchall()
    assert left == [(210, 210)]
    rows = filled.con.sql(
        "SELECT DISTINCT rule, level, reason, locator LIKE '%a.jsonl:%' FROM quarantine"
    ).fetchall()
    assert rows == [("excluded", "transition", f"excluded where {hour}", True)]
    assert filled.con.sql("SELECT count(*) FROM splits").fetchall() == [(210,)]


def test_the_condition_is_in_the_manifest_and_in_the_hash(filled):
    plain, one = build(filled), build(filled, "model = 'nobody'", name="e")
    assert one.left_out == {"excluded where model = 'nobody'": 0}, "a condition that nothing meets is told"
    assert read_manifest(one.path).config["exclude_where"] == ["model = 'nobody'"]
    assert plain.hash != one.hash


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("hour(started_at) BETWEEN 1 AND 4 AND model = 'plain'", 20),
        ("started_at >= TIMESTAMP '2026-01-14 00:00:00'", 24),
        ("started_at::date = DATE '2026-01-05'", 24),
        (
            "dayofweek(started_at) = 1 AND isodow(started_at) = 1 AND day(started_at) = 5 AND month(started_at) = 1",
            24,
        ),
        ("year(started_at) = 2026 AND minute(started_at) = 0 AND NOT success", 30),
        ("epoch(started_at) % 7200 = 0", 120),
        ("contains(task, 'task 17')", 11),
        ("format = 'openai_messages' OR metadata->>'$.host' = 'x'", 240),
        ("temperature > 0.5", 0),
        ("NOT (temperature > 0.5)", 0),
    ],
)
def test_what_a_condition_chooses(filled, condition, count):
    assert len(chosen(filled, condition)) == count


def test_any_logged_name_can_be_written_as_a_condition(filled):
    assert len(chosen(filled, f"model = {text_literal(chr(109) + chr(39) + chr(34) + '$x')}")) == 120


def test_an_episode_is_left_out_by_the_first_condition_that_it_meets(filled):
    found = chosen(filled, "NOT success", "hour(started_at) < 2")
    reasons = [item.reason for item in found.values()]
    assert (reasons.count("excluded where NOT success"), len(reasons)) == (30, 40)


HOSTILE = {
    "true; DROP TABLE episodes": "statements",
    "episode_id IN (SELECT episode_id FROM steps)": "not allowed",
    "(SELECT true)": "not allowed",
    "read_text('/etc/passwd') = ''": "not allowed|unknown function",
    "getenv('HOME') = ''": "unknown function",
    "pg_sleep(9)": "unknown function",
    "episodes.model = 'x'": "without a table",
    "tools IS NULL": "unknown column",
    "started_at > '2026-01-01'": "write TIMESTAMP",
    "started_at = 1": "compares a time with a number",
    "started_at > TIMESTAMP 'yesterday'": "Conversion Error",
    "cost_usd": "must give a truth value",
    "": "not an SQL expression",
    "model =": "not an SQL expression",
    "hour(started_at) OVER () = 1": "not allowed",
}


@pytest.mark.parametrize("condition", HOSTILE)
def test_hostile_and_wrong_conditions_are_refused(condition):
    with pytest.raises(SpecError, match=HOSTILE[condition]) as error:
        read_conditions([condition])
    assert error.value.problems[0].path.startswith("--exclude-where")


def test_all_that_is_wrong_is_told_at_once():
    with pytest.raises(SpecError) as error:
        read_conditions(["tools IS NULL", "model = 'x'", "cost_usd"])
    assert len(error.value.problems) == 2


def test_a_cast_that_fails_on_a_value_names_the_condition(filled):
    with pytest.raises(SpecError, match=r"Conversion Error.*--exclude-where model::INT > 1"):
        chosen(filled, "model::INT > 1")


def test_the_command_refuses_before_it_reads(filled, tmp_path):
    (tmp_path / "spec.yaml").write_text(SPEC)
    filled.close()
    spec, path = str(tmp_path / "spec.yaml"), str(filled.path)
    arguments = ["build-dataset", "--reward", spec, "--store", path, "--exclude-where", "1; 2"]
    done = CliRunner().invoke(main, [*arguments, "--encoder", "hashing"])
    assert (done.exit_code, "statements" in done.stderr) == (2, True)
