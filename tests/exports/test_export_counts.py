"""Nothing is lost on the way out: in every format, what is written and what is left out are all that the split has."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from logforge.cli.commands import main
from logforge.exports.catalogue import CONTRASTS, FORMATS, Options, format_named
from logforge.exports.contrasts import pairs_of
from logforge.exports.job import Written
from logforge.exports.pipeline import export
from logforge.schemas.errors import Mismatch, StoreError, UnknownName, UsageError
from logforge.shards.reader import load_shards, read_manifest
from logforge.store.store import Store

OUT = {
    "minari": "x-v0",
    "huggingface": "folder",
    "d3rlpy": "x.h5",
    "parquet": "x.parquet",
    "rlds": "x.parquet",
}
EXTRAS = {"minari": ("minari", "PIL")}


def written(home, name, folder, **more):
    for module in EXTRAS.get(name, ()):
        pytest.importorskip(module)
    return export(home / "d", name, folder / OUT.get(name, "x.jsonl"), store=home / "store.duckdb", **more)


@pytest.mark.parametrize("name", FORMATS)
def test_written_and_left_out_are_the_split(exports_home, tmp_path, name):
    report, counts = written(exports_home, name, tmp_path), read_manifest(exports_home / "d").splits
    if FORMATS[name].counts == CONTRASTS:
        with Store(exports_home / "store.duckdb", read_only=True) as store:
            expected = {"train": pairs_of(store, "d", "train").height}
    else:
        expected = {part.split: counts[part.split].transitions for part in report.written}
    assert {part.split: part.total for part in report.written} == expected
    assert set(expected) == (set(counts) if FORMATS[name].every_split else {"train"})
    assert rows_in(report) == report.rows > 0
    told = report.as_dict()["splits"]["train"]
    assert told["of"] == told[report.counts] + sum(told["left_out"].values())
    assert f"{told['rows']:,} rows" in report.render()
    assert all(reason in report.render() for reason in told["left_out"])


def rows_in(report) -> int:
    """Counted anew in what lies on the disk."""
    if report.format in ("parquet", "rlds"):
        return pq.read_metadata(report.path).num_rows
    if report.format == "huggingface":
        return sum(pq.read_metadata(file).num_rows for file in report.path.glob("data/*.parquet"))
    if report.format == "d3rlpy":
        from logforge.shards.d3rlpy import load_mdp_dataset

        return load_mdp_dataset(report.path).transition_count
    if report.format == "minari":
        return json.loads((report.path / "data" / "metadata.json").read_bytes())["total_episodes"]
    return len(report.path.read_text("utf-8").split("\n")) - 1


def test_what_is_lost_on_the_way_is_an_error(exports_home, tmp_path, monkeypatch):
    monkeypatch.setattr("logforge.exports.rows.write", lambda job: [Written("train", 1, 1)])
    with pytest.raises(Mismatch, match="transitions of train"):
        written(exports_home, "parquet", tmp_path)


@pytest.mark.parametrize("name", [name for name, form in FORMATS.items() if form.texts])
def test_texts_are_written_alike_each_time_and_whole_or_not_at_all(exports_home, tmp_path, name, monkeypatch):
    first = written(exports_home, name, tmp_path).path.read_bytes()
    assert written(exports_home, name, tmp_path).path.read_bytes() == first

    def no_room(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("logforge.core.files.sync", no_room)
    with pytest.raises(StoreError, match="No space left"):
        written(exports_home, name, tmp_path)
    assert (tmp_path / "x.jsonl").read_bytes() == first
    assert [file.name for file in tmp_path.iterdir()] == ["x.jsonl"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_refuses_the_options_it_would_ignore(exports_home, tmp_path, name):
    changed = {"uncertain": True, "successes": True, "weigh": "gae", "keep": "all"}
    changed |= {"credit": "gae", "key_share": 0.5, "least_support": 1, "key_steps": "key_steps.jsonl"}
    for option in set(changed) - set(FORMATS[name].options):
        with pytest.raises(UsageError, match=f"{name} takes no --{option.replace('_', '-')}"):
            written(exports_home, name, tmp_path, options=Options(**{option: changed[option]}))


def test_progress_is_told_up_to_the_end(exports_home, tmp_path):
    for name in ("parquet", "rlds", "trl-sft", "trl-dpo"):
        seen = []
        written(
            exports_home,
            name,
            tmp_path,
            progress=lambda done, total, note, seen=seen: seen.append((done, total)),
        )
        assert seen[-1][0] == seen[-1][1] > 0


def test_the_store_itself_is_never_written_over(exports_home, tmp_path):
    store = exports_home / "store.duckdb"
    before = store.read_bytes()
    with pytest.raises(UsageError, match="is the store"):
        export(exports_home / "d", "trl-sft", store, store=store)
    assert store.read_bytes() == before


def test_a_secret_is_in_no_export(exports_home, tmp_path):
    """Texts come from the store, whose secrets were replaced when they were read."""
    from logforge.dataset.build.pipeline import BuildConfig, build_dataset
    from logforge.ingestion.pipeline import ingest
    from support.made_exports import SPEC, trial

    key = "AKIA" + "QYLPMN5HHHFPZAM2"
    secret = [trial(task, "search", 0, True) for task in ("one", "two", "three", "four", "five", "six")]
    for row in secret:
        row["messages"][2]["content"] = (
            f"aws_access_key_id = {key}\naws_secret_access_key = 7CVm2f/Lb9QfJ1Xx0pWn4sTzKeRuYgHd8AaBc3Ev"
        )
    (tmp_path / "logs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in secret))
    (tmp_path / "reward.yaml").write_text(SPEC)
    config = BuildConfig(encoder="hashing", text_size=2, near_threshold=1, fractions=(0.98, 0.01, 0.01))
    with Store(tmp_path / "store.duckdb") as store:
        ingest(store, [tmp_path / "logs.jsonl"], workers=1)
        build_dataset(store, tmp_path / "reward.yaml", name="d", out=tmp_path, config=config)
    for name in ("trl-sft", "trl-kto", "atif"):
        text = written(tmp_path, name, tmp_path).path.read_text("utf-8")
        assert key not in text
        assert "aws_access_key_id" in text


def test_the_catalogue_says_everything_and_the_help_lists_it(exports_home, tmp_path):
    shown = CliRunner().invoke(main, ["export", "--help"]).stdout
    for name, form in FORMATS.items():
        assert name in shown
        assert form.keeps
        assert form.loses
        assert form.loads
    with pytest.raises(UnknownName, match="did you mean 'rlds'"):
        format_named("rldz")


def test_the_command_line_says_what_was_left_out(exports_home, tmp_path):
    args = [
        "export",
        str(exports_home / "d"),
        "--store",
        str(exports_home / "store.duckdb"),
        "--out",
        str(tmp_path / "x"),
    ]
    done = CliRunner().invoke(main, [*args, "--format", "trl-kto"])
    assert done.exit_code == 0, done.output
    assert "(no outcome)" in done.stdout
    held = CliRunner().invoke(main, [*args, "--format", "weighted-sft", "--keep", "top=0.5", "--json"])
    told = json.loads(held.stdout)
    assert told["rows"] == told["splits"]["train"]["rows"] > 0
    wrong = CliRunner().invoke(main, [*args, "--format", "weighted-sft", "--keep", "top=9"])
    assert (wrong.exit_code, "--keep top=0.2" in wrong.stderr) == (2, True)
    assert load_shards(exports_home / "d").size == told["splits"]["train"]["of"]
