"""Validates a store or a dataset again, any time: all that is wrong at once, with place, rule and remedy.

A store is held against the laws of store_laws.py. A dataset is held against them too, and besides: its files against their
checksums, its rows against the rules of schemas/transition.py, its arrays against its rows, its splits against the proof,
near-duplicates looked for anew, and any gates that are given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from logforge.checks.store_laws import DATASET_LAWS, STORE_LAWS, StoreLaw
from logforge.core import POLARS_TYPES, BaseReport, Lines, Tick, noted, plural, silent
from logforge.dataset.quality import Measures, check_thresholds, pass_gates, validate, validate_arrays
from logforge.lineage import moved
from logforge.schemas import TABLES, TRANSITIONS, CheckFailed, LogforgeError, Manifest, Problem, UsageError
from logforge.shards import MANIFEST, SPLITS, Shard, check_files, load_shards, read_manifest
from logforge.splits import crossing, near_duplicates
from logforge.store import Store, dataset_named, open_store

SHOWN = 20
"""So many rows of one law are named; their number is told, and its query gives all."""
_BUILD = "build the dataset again"
_PARTS = 6
_MAPS = {c.name: POLARS_TYPES[c.type] for c in TRANSITIONS.columns if c.type.startswith("MAP")}


@dataclass(frozen=True)
class CheckReport(BaseReport):
    """What was checked of a dataset; a broken rule raises instead. Without `rows` only its folder was looked at. `notes` say
    what could not be checked."""

    dataset: str
    hash: str
    transitions: int
    splits: tuple[str, ...]
    rows: bool = True
    gates: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def lines(self) -> Lines:
        """What holds, and what could not be checked."""
        held = "all rules hold, no key in two splits" if self.rows else "files and arrays are whole"
        passed = f", {plural(len(self.gates), 'gate')} passed" if self.gates else ""
        yield f"{self.dataset}: {self.transitions} transitions, shards {', '.join(self.splits)} — {held}{passed}"
        yield from noted(self.notes, "  note: ")


@dataclass(frozen=True)
class StoreReport(BaseReport):
    """What was checked of a store: its laws, and every dataset in it."""

    store: str
    sources: int
    episodes: int
    steps: int
    laws: int
    datasets: tuple[CheckReport, ...]

    def lines(self) -> Lines:
        """What it holds, then its datasets."""
        held = ", ".join(plural(getattr(self, noun), noun[:-1]) for noun in ("sources", "episodes", "steps"))
        yield f"{self.store}: {held} — all {self.laws} laws hold"
        yield from (report.render() for report in self.datasets)


def check(
    store: str | Path,
    given: str | None = None,
    gates: Mapping[str, float] | None = None,
    progress: Tick = silent,
    *,
    sources: bool = False,
    wait: float = 0,
    waiting: Callable[[str], None] | None = None,
) -> CheckReport | StoreReport:
    """Check a store and all that is in it, or the dataset that a name or a folder stands for; with `sources` also that the
    files that were read are what they were.

    A folder whose rows are not in the store, or that has none, is checked by itself. Raises CheckFailed listing every
    broken rule, UnknownName for what is neither a name nor a folder.
    """
    is_folder = given is not None and (Path(given) / MANIFEST).is_file()
    if given is not None and is_folder and not Path(store).exists():
        return _alone(given, gates, sources)
    with open_store(store, read_only=True, wait=wait, waiting=waiting) as opened:
        if given is None:
            return check_store(opened, gates, progress, sources=sources)
        names = [row[0] for row in opened.con.sql("SELECT dataset FROM datasets ORDER BY 1").fetchall()]
        if given in names or not is_folder:
            return check_dataset(opened, given, gates, progress, sources=sources)
        name = _name_of(opened, Path(given))
        if name is None:
            return _alone(given, gates, sources)
        return check_dataset(opened, name, gates, progress, Path(given), sources=sources)


def _alone(folder: str, gates: Mapping[str, float] | None, sources: bool) -> CheckReport:
    """A folder whose rows are in no store at hand; what needs them is refused and not passed over."""
    if gates or sources:
        asked = "gates are" if gates else "--sources is"
        raise UsageError(
            f"{asked} asked for, and the store does not hold the rows of {folder}",
            "name the --store it was built from",
        )
    return check_folder(folder)


def check_store(
    store: Store,
    gates: Mapping[str, float] | None = None,
    progress: Tick = silent,
    *,
    sources: bool = False,
) -> StoreReport:
    """Check a store and every dataset in it. Raises CheckFailed listing every broken law and rule."""
    check_thresholds(gates or {})
    _read_whole(store)
    names = [row[0] for row in store.con.sql("SELECT dataset FROM datasets ORDER BY 1").fetchall()]
    total = len(STORE_LAWS) + _PARTS * len(names)
    problems = list(broken(store, STORE_LAWS, {}, lambda done, _, note: progress(done, total, note)))
    reports = []
    for place, name in enumerate(names):
        start = len(STORE_LAWS) + _PARTS * place
        report, found = _look_at(store, name, gates or {}, _from(progress, start, total, name))
        reports.append(report)
        problems += [replace(problem, what=f"dataset {name}: {problem.what}") for problem in found]
    problems += [one.problem() for one in moved(store, None, progress)] if sources else []
    _refuse(str(store.path), problems)
    ((files, episodes, steps),) = store.con.sql(_SIZES).fetchall()
    return StoreReport(str(store.path), files, episodes, steps, len(STORE_LAWS), tuple(reports))


def _read_whole(store: Store) -> None:
    """DuckDB holds each block that it reads against its checksum, and the laws do not ask for every column."""
    for table in TABLES:
        store.con.sql(f"SELECT bit_xor(hash(t)) FROM {table} t").fetchall()


_SIZES = (
    "SELECT (SELECT count(*) FROM sources), (SELECT count(*) FROM episodes), (SELECT count(*) FROM steps)"
)

_SOURCES = """
    SELECT DISTINCT path FROM transitions t JOIN episodes e ON e.episode_id = coalesce(split_part(t.parent_id, '/', 1), t.episode_id)
    JOIN sources USING (source_id) WHERE t.dataset = ? ORDER BY path
"""


def check_dataset(
    store: Store,
    name: str,
    gates: Mapping[str, float] | None = None,
    progress: Tick = silent,
    folder: Path | None = None,
    *,
    sources: bool = False,
) -> CheckReport:
    """Check a dataset, its files where it was built or in `folder`. Raises CheckFailed listing every broken rule."""
    check_thresholds(gates or {})
    name = dataset_named(store, name)
    report, problems = _look_at(store, name, gates or {}, _from(progress, 0, _PARTS, name), folder)
    if sources:
        labels = [label for (label,) in store.con.sql(_SOURCES, params=[name]).fetchall()]
        problems = [*problems, *(one.problem() for one in moved(store, labels, progress))]
    _refuse(name if folder is None else str(folder), problems)
    return report


def check_folder(folder: str | Path) -> CheckReport:
    """Check a dataset's folder alone: its manifest, its files, and its arrays among themselves."""
    manifest = read_manifest(folder)
    shards, problems = _shards(Path(folder), manifest)
    for shard in shards.values():
        try:
            shard.verify()
        except CheckFailed as error:
            problems += [replace(problem, path=problem.path or str(folder)) for problem in error.failures]
    _refuse(str(folder), problems)
    note = "its rows are not in the store: rows, splits, near-duplicates and conflicts are not checked"
    size = sum(shard.size for shard in shards.values())
    return CheckReport(str(folder), manifest.hash, size, tuple(shards), rows=False, notes=(note,))


def _name_of(store: Store, folder: Path) -> str | None:
    """The dataset whose folder it is, else one whose build it holds (a copy)."""
    rows = store.con.sql("SELECT dataset, path, hash FROM datasets ORDER BY dataset").fetchall()
    here = [name for name, path, _ in rows if (store.path.parent / path).resolve() == folder.resolve()]
    found = read_manifest(folder).hash
    return next(iter([*here, *(name for name, _, hash_ in rows if hash_ == found)]), None)


def _from(progress: Tick, start: int, total: int, name: str) -> Tick:
    return lambda done, _, note: progress(start + done, total, f"{name}: {note}")


def _refuse(what: str, problems: Sequence[Problem]) -> None:
    """Raise CheckFailed for any problem, with the remedy of each rule told once."""
    if not problems:
        return
    rules: dict[str, list[str]] = {}
    for problem in problems:
        rules.setdefault(problem.remedy or _BUILD, []).append(problem.rule)
    told = [f"{remedy} ({', '.join(dict.fromkeys(filter(None, named))) or 'the others'})" for remedy, named in rules.items()]  # fmt: skip
    remedy = next(iter(rules)) if len(rules) == 1 else "; ".join(told)
    raise CheckFailed(f"{what}: {plural(len(problems), 'problem')}", problems, remedy)


def broken(
    store: Store, laws: Sequence[StoreLaw], values: Mapping[str, str], progress: Tick
) -> Iterator[Problem]:
    """What breaks laws, at most SHOWN rows of each. `values` are those of the queries' parameters."""
    for done, law in enumerate(laws):
        progress(done, len(laws), law.rule)
        cursor = store.con.execute(law.query, dict(values))
        rows = cursor.fetchmany(SHOWN)
        for place, detail in rows:
            yield Problem(detail or law.meaning, place or "", rule=law.rule, remedy=law.remedy)
        if len(rows) == SHOWN and (more := len(cursor.fetchall())):
            yield Problem(f"and {more:,} more", rule=law.rule, remedy=law.remedy)


def _look_at(
    store: Store, name: str, gates: Mapping[str, float], progress: Tick, folder: Path | None = None
) -> tuple[CheckReport, list[Problem]]:
    """All of a dataset that can be wrong."""
    label, hash_, built = store.con.execute(
        "SELECT path, hash, created_at FROM datasets WHERE dataset = ?", [name]
    ).fetchall()[0]
    folder = folder or store.path.parent / label
    progress(0, _PARTS, "rows")
    rows = _rows(store, name)
    problems = list(broken(store, DATASET_LAWS, {"dataset": name}, silent)) + _leaks(store, name)
    progress(1, _PARTS, "files")
    manifest, notes = None, []
    shards: dict[str, Shard] = {}
    try:
        manifest = read_manifest(folder)
        shards, damaged = _shards(folder, manifest)
        problems += damaged
    except LogforgeError as error:
        problems.append(Problem(error.message, str(folder), remedy=_BUILD))
    progress(2, _PARTS, "arrays")
    problems += _arrays(rows, shards, str(folder))
    progress(3, _PARTS, "rules")
    if manifest is not None:
        problems += _rules(rows, manifest, hash_, str(folder))
    progress(4, _PARTS, "near-duplicates")
    if _has_moved(store, built, manifest):
        notes.append("near-duplicates are not looked for again: the store has changed since the build")
    else:
        problems += _near(store, name)
    progress(5, _PARTS, "gates")
    if gates and manifest is not None and set(shards) == set(manifest.splits):
        problems += _gates(store, name, rows, shards, gates, manifest.seed)
    elif gates:
        notes.append("gates are not measured: the dataset's files cannot be read")
    progress(6, _PARTS, "")
    return CheckReport(
        name, hash_, rows.height, tuple(shards), gates=tuple(gates), notes=tuple(notes)
    ), problems


def _rows(store: Store, name: str) -> pl.DataFrame:
    query = "SELECT * EXCLUDE (dataset) FROM transitions WHERE dataset = ? ORDER BY episode_id, step"
    rows: pl.DataFrame = store.con.sql(query, params=[name]).pl().cast(_MAPS)
    return rows


def _shards(folder: Path, manifest: Manifest) -> tuple[dict[str, Shard], list[Problem]]:
    """The splits whose files are whole, and each file that is not."""
    problems: list[Problem] = []
    shards: dict[str, Shard] = {}
    damaged: set[str] = set()
    for file in sorted(manifest.checksums):
        try:
            check_files(folder, manifest, [file])
        except LogforgeError as error:
            problems.append(Problem(error.message, str(folder), remedy=_BUILD))
            damaged.add(file.split("/")[0])
    for split in (name for name in SPLITS if name in manifest.splits):
        try:
            if split not in damaged:
                shards[split] = load_shards(folder, split, verify=False)
        except LogforgeError as error:
            problems.append(Problem(error.message, str(folder), remedy=_BUILD))
    return shards, problems


def _arrays(rows: pl.DataFrame, shards: Mapping[str, Shard], path: str) -> Iterator[Problem]:
    """Arrays that are not what their rows say."""
    for split, shard in shards.items():
        for row in validate_arrays(rows.filter(pl.col("split") == split), shard).to_dicts():
            yield Problem(
                f"{row['detail']} ({split})", row["locator"] or path, rule=row["rule"], remedy=_BUILD
            )


def _rules(rows: pl.DataFrame, manifest: Manifest, hash_: str, path: str) -> Iterator[Problem]:
    """Rows of another build, and rows that break a rule."""
    if manifest.hash != hash_:
        what = f"the shards are those of {manifest.hash}, the store's rows of {hash_}; build again"
        yield Problem(what, path, remedy=_BUILD)
    known = manifest.vocabulary
    failures = validate(rows, manifest.gamma, known.size, known.invalid, known.other)
    for row in failures.to_dicts():
        yield Problem(row["reason"], row["locator"] or "", rule=row["rule"], remedy=_BUILD)


def _leaks(store: Store, name: str) -> list[Problem]:
    """The proof of logforge/splits/assign.py on the stored rows, with the stored near-duplicates. Episodes that are no longer stored as
    the build saw them (ingested since, or left out by a flag) have no split and are not asked for one."""
    episodes = store.con.sql(
        "SELECT episodes.* FROM episodes SEMI JOIN splits ON splits.episode_id = episodes.episode_id AND dataset = ?",
        params=[name],
    ).pl()
    splits = store.con.sql("SELECT * FROM splits WHERE dataset = ?", params=[name]).pl()
    near = store.con.sql("SELECT * FROM near_duplicates WHERE dataset = ?", params=[name]).pl()
    found = crossing(episodes, splits, near).to_dicts()
    return [
        Problem(
            f"{row['link']} {row['key']} lies in {', '.join(row['splits'])}",
            rule="split_proof",
            remedy=_BUILD,
        )
        for row in found
    ]


def _has_moved(store: Store, built: Any, manifest: Manifest | None) -> bool:
    """Whether the store's episodes may be others than those the build saw."""
    ((newer,),) = store.con.execute("SELECT count(*) FROM sources WHERE ingested_at > ?", [built]).fetchall()
    return bool(newer) or manifest is None or manifest.forgotten > 0


def _near(store: Store, name: str) -> Iterator[Problem]:
    """Near-duplicates that the build did not list, and those that it listed and are none."""
    chosen = store.con.execute("SELECT episode_id FROM splits WHERE dataset = ?", [name]).fetchall()
    fresh = near_duplicates(store.episodes(row[0] for row in chosen))
    stored = store.con.sql(
        "SELECT episode_a, episode_b FROM near_duplicates WHERE dataset = ?", params=[name]
    )
    now, then = set(fresh.select("episode_a", "episode_b").iter_rows()), set(stored.fetchall())
    for found, what in (
        (now - then, "near-duplicates that are not listed"),
        (then - now, "listed, and no near-duplicates"),
    ):
        for a, b in sorted(found):
            yield Problem(what, f"{a} ~ {b}", rule="near_duplicates", remedy=_BUILD)


def _gates(
    store: Store,
    name: str,
    rows: pl.DataFrame,
    shards: Mapping[str, Shard],
    gates: Mapping[str, float],
    seed: int,
) -> Sequence[Problem]:
    """The gates that the dataset does not meet."""
    conflicts = store.con.sql("SELECT * FROM conflicts WHERE dataset = ?", params=[name]).pl()
    try:
        pass_gates(gates, Measures(rows, conflicts, shards, seed))
    except CheckFailed as error:
        return [replace(problem, remedy=error.remedy) for problem in error.failures]
    return ()
