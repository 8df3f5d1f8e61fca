"""Which episodes belong together, and on which side each group falls.

Episodes that share a task, a group, a session, a user, a parent or a continued episode, or are near-duplicates, form one
group (transitively), and a group never crosses splits. The split is a hash of the group's key and the seed: neither the
order of arrival nor unrelated new logs move anything. Only a new episode that joins two groups, or brings a smaller key,
can; report.py says so. A split by time goes by when a group was last begun instead, and its cuts move with new logs.
Episodes that are held out take their whole groups with them, and leave the others where they were.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence

import duckdb
import polars as pl
import xxhash

from logforge.schemas import DRAWN_SPLITS, HELD_OUT, Episode, UnknownName, UsageError

SPLIT_BY: tuple[str, ...] = ("group", "time")
"""What decides a group's split: the hash of its key, or when it was last begun."""
LINKS: tuple[str, ...] = ("task", "group", "text", "session", "user", "parent", "continues", "near")
"""What can join episodes, in the order in which `reason` names it."""
ALONE = "alone"
"""The reason of a group that nothing joined."""

_KINDS = (*LINKS[:5], "episode")
"""Kinds of keys, most lasting first: a group goes by its smallest key of the first kind it has, so that another trial
of a known task leaves the group's key, and so its split, as it was."""


def grouping_frame(episodes: Iterable[Episode]) -> pl.DataFrame:
    """What splits go by, a row for each episode, named as in the store's table."""
    names = "episode_id format task_id task group_id session_id user_id parent_episode_id continues_episode_id".split()
    schema = {**dict.fromkeys(names, pl.String), "started_at": pl.Int64}
    return pl.DataFrame(
        [{name: getattr(episode, name) for name in schema} for episode in episodes], schema=schema
    )


def assign_splits(
    episodes: pl.DataFrame,
    seed: int,
    fractions: Sequence[float] = (0.7, 0.15, 0.15),
    near: pl.DataFrame | None = None,
    by: str = "group",
    held_out: Collection[str] = (),
) -> pl.DataFrame:
    """The split of each episode: episode_id, group_key, split and reason (what joined its group), by episode_id.

    `episodes` has the columns of the store's table of that name. `fractions` are those of train, validation and test.
    `near` holds pairs of near-duplicates, as duplicates.py gives them. `by` is one of SPLIT_BY; for "time" the
    frame needs `started_at`, and UsageError names how many groups have none. The groups of the episodes `held_out` lie in the
    split of that name, whatever `by` says.
    """
    _check(fractions, by)
    episodes = episodes.sort("episode_id")
    keys = _keys(episodes, near)
    group = pl.Series("group", _components(keys["row"], keys["code"], episodes.height), dtype=pl.Int64)
    keys = keys.with_columns(group.gather(keys["row"]))
    named = keys.sort("kind", "key").group_by("group").agg(pl.col("name").first().alias("group_key"))
    held = group.filter(episodes["episode_id"].is_in(list(held_out))).unique().to_list()
    if by == "time":
        dated = episodes.select(group, started="started_at").filter(~pl.col("group").is_in(held))
        named = named.join(_by_time(dated, fractions), on="group", how="left")
    else:
        splits = [split_of(name, seed, fractions) for name in named["group_key"].to_list()]
        named = named.with_columns(pl.Series("split", splits, dtype=pl.String))
    named = named.with_columns(
        split=pl.when(pl.col("group").is_in(held)).then(pl.lit(HELD_OUT)).otherwise("split")
    )
    return (
        episodes.select("episode_id", group)
        .join(named, on="group", how="left")
        .join(_reasons(keys), on="group", how="left")
        .select("episode_id", "group_key", "split", pl.col("reason").fill_null(ALONE))
        .sort("episode_id")
    )


def split_of(group_key: str, seed: int, fractions: Sequence[float] = (0.7, 0.15, 0.15)) -> str:
    """The split of a group: its hash with the seed, as a number in [0, 1), against the cumulative fractions."""
    # 53 bits: the largest of them is still below 1 as a double
    place = (xxhash.xxh3_64_intdigest(f"{seed}\x1f{group_key}".encode()) >> 11) / 2**53
    return _split_at(place, fractions)


def _split_at(place: float, fractions: Sequence[float]) -> str:
    """The split that holds a place in [0, 1) when the splits lie one behind the other."""
    limits = itertools.accumulate(fractions)
    last = max(index for index, fraction in enumerate(fractions) if fraction > 0)
    return next(
        (name for name, limit in zip(DRAWN_SPLITS, limits, strict=True) if place < limit), DRAWN_SPLITS[last]
    )


def _by_time(episodes: pl.DataFrame, fractions: Sequence[float]) -> pl.DataFrame:
    """The split of each group by its latest start, oldest first: train is over before what is tested begins.

    A group's place is the share of episodes in groups that were last begun before it, so equal starts stay together.
    """
    groups = episodes.group_by("group").agg(pl.col("started").max(), episodes=pl.len())
    undated = groups["started"].null_count()
    if undated:
        what = f"{undated} of {groups.height} groups hold no episode with a start time, and a split by time needs one"
        raise UsageError(what, "leave their logs out, or split by group (--split-by group)")
    earlier = (
        groups.group_by("started")
        .agg(pl.col("episodes").sum())
        .sort("started")
        .select("started", place=pl.col("episodes").cum_sum().shift(1, fill_value=0) / episodes.height)
    )
    split = pl.col("place").map_elements(lambda place: _split_at(place, fractions), return_dtype=pl.String)
    return groups.join(earlier, on="started").select("group", split=split)


def _check(fractions: Sequence[float], by: str) -> None:
    if by not in SPLIT_BY:
        raise UnknownName("way to split", by, SPLIT_BY)
    whole = len(fractions) == len(DRAWN_SPLITS) and abs(sum(fractions) - 1) < 1e-9
    if not whole or any(not 0 <= fraction <= 1 for fraction in fractions):
        remedy = f"give {len(DRAWN_SPLITS)} numbers from 0 to 1 that sum to 1, for {', '.join(DRAWN_SPLITS)}"
        raise UsageError(f"split fractions {tuple(fractions)} are no partition", remedy)


def _keys(episodes: pl.DataFrame, near: pl.DataFrame | None) -> pl.DataFrame:
    """One row per episode and key: row, link (what it joins by), kind, key, name and code (equal for equal names)."""
    own = pl.lit("episode:") + pl.col("episode_id")
    within = pl.col("format") + "/"
    text = pl.col("task").cast(pl.String).map_elements(_text_key, return_dtype=pl.String)
    columns = {
        "task": within + _given("task_id"),
        "group": _given("group_id"),
        "text": pl.when(_given("task_id").is_null() & _given("task").is_not_null()).then(text),
        "session": within + _given("session_id"),
        "user": within + _given("user_id"),
        "parent": _given("parent_episode_id"),
        "continues": _given("continues_episode_id"),
    }
    rows = pl.int_range(pl.len(), dtype=pl.Int64).alias("row")
    parts = [episodes.select(rows, _literal("own"), _kind("episode"), key="episode_id", name=own)]
    for link, key in columns.items():
        kind = link if link in _KINDS else "episode"
        part = episodes.select(rows, _literal(link), _kind(kind), key=key)
        parts.append(part.drop_nulls("key").with_columns(name=pl.lit(f"{kind}:") + pl.col("key")))
    if near is not None:  # the second of a pair holds the first one's own key
        pairs = near.select(key="episode_a", episode_id="episode_b")
        part = episodes.select(rows, "episode_id").join(pairs, on="episode_id", maintain_order="left")
        name = pl.lit("episode:") + pl.col("key")
        parts.append(part.select("row", _literal("near"), _kind("episode"), "key", name=name))
    return pl.concat(parts).with_columns(code=pl.col("name").rank("dense").cast(pl.Int64) - 1)


def _text_key(text: str) -> str:
    return xxhash.xxh3_128_hexdigest(text.encode())


def _given(column: str) -> pl.Expr:
    value = pl.col(column).cast(pl.String)
    return pl.when(value != "").then(value)


def _literal(link: str) -> pl.Expr:
    return pl.lit(link).alias("link")


def _kind(kind: str) -> pl.Expr:
    return pl.lit(_KINDS.index(kind), dtype=pl.Int8).alias("kind")


def _components(rows: pl.Series, codes: pl.Series, count: int) -> list[int]:
    """Union-find: for each of `count` episodes the number of its group. Rows that hold one key are one group."""
    root = list(range(count))

    def find(row: int) -> int:
        while root[row] != row:
            root[row] = root[root[row]]
            row = root[row]
        return row

    holder: dict[int, int] = {}
    for row, code in zip(rows.to_list(), codes.to_list(), strict=True):
        a, b = find(row), find(holder.setdefault(code, row))
        root[max(a, b)] = min(a, b)
    return [find(row) for row in range(count)]


def _reasons(keys: pl.DataFrame) -> pl.DataFrame:
    """For each group, the links by which at least two of its episodes hold one key."""
    shared = keys.filter(pl.col("row").n_unique().over("code") > 1, pl.col("link") != "own")
    order = pl.col("link").replace_strict(
        {link: place for place, link in enumerate(LINKS)}, return_dtype=pl.Int8
    )
    return (
        shared.select("group", "link", order.alias("order"))
        .unique()
        .sort("group", "order")
        .group_by("group", maintain_order=True)
        .agg(pl.col("link").str.join(",").alias("reason"))
    )


def crossing(episodes: pl.DataFrame, splits: pl.DataFrame, near: pl.DataFrame | None = None) -> pl.DataFrame:
    """What a leak-free assignment has none of: link, key, splits and episodes of each key that lies in two splits.

    A pair of near-duplicates in two splits counts (link "near"), and so does an episode without exactly one split (link
    "assignment"). It reads the frames alone, in SQL, and shares no code with `assign_splits`: a proof, not a repetition.
    """
    with duckdb.connect() as con:
        con.register("episodes", episodes)
        con.register("splits", splits)
        con.register("near_duplicates", _NO_PAIRS if near is None else near)
        found: pl.DataFrame = con.sql(PROOF).pl()
        return found


_NO_PAIRS = pl.DataFrame(schema={"episode_a": pl.String, "episode_b": pl.String})

PROOF = """
WITH held(link, key, episode_id) AS (
    SELECT 'task', format || '/' || task_id, episode_id FROM episodes WHERE task_id <> ''
    UNION ALL SELECT 'text', task, episode_id FROM episodes WHERE coalesce(task_id, '') = '' AND task <> ''
    UNION ALL SELECT 'group', group_id, episode_id FROM episodes WHERE group_id <> ''
    UNION ALL SELECT 'session', format || '/' || session_id, episode_id FROM episodes WHERE session_id <> ''
    UNION ALL SELECT 'user', format || '/' || user_id, episode_id FROM episodes WHERE user_id <> ''
    UNION ALL SELECT 'episode', parent_episode_id, episode_id FROM episodes WHERE parent_episode_id <> ''
    UNION ALL SELECT 'episode', continues_episode_id, episode_id FROM episodes WHERE continues_episode_id <> ''
    UNION ALL SELECT 'episode', episode_id, episode_id FROM episodes
    UNION ALL SELECT 'near', episode_a || ' ~ ' || episode_b, unnest([episode_a, episode_b]) FROM near_duplicates
    UNION ALL SELECT 'group key', group_key, episode_id FROM splits
), crossed AS (
    SELECT link, key, list_sort(list(DISTINCT split)) AS splits, list_sort(list(DISTINCT episode_id)) AS episodes
    FROM held JOIN splits USING (episode_id) GROUP BY link, key HAVING count(DISTINCT split) > 1
), unassigned AS (
    SELECT 'assignment' AS link, e.episode_id AS key, list_sort(list(s.split) FILTER (s.split IS NOT NULL)) AS splits,
           [e.episode_id] AS episodes
    FROM episodes e LEFT JOIN splits s USING (episode_id) GROUP BY e.episode_id HAVING count(s.split) <> 1
)
SELECT * FROM crossed UNION ALL SELECT * FROM unassigned ORDER BY link, key
"""
"""The query of `crossing`, over `episodes`, `splits` and `near_duplicates` of one dataset: no row, no leak."""
