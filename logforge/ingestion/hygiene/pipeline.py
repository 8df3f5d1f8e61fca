"""Tables as a connector gave them to tables fit to be stored: clean characters, no secrets, flags on what is suspect.

A secret that one text of an episode gives away (`password=…`) is taken out of every text of that episode, where it is
telling enough that it would hardly stand there by chance (`logforge/ingestion/hygiene/episode_secrets.py`).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from logforge.connectors.episodes import prompt_suffix, prompt_version
from logforge.core import Tables, rows_table
from logforge.ingestion.hygiene.danger import Dangers
from logforge.ingestion.hygiene.episode_secrets import Spread
from logforge.ingestion.hygiene.flaggers import with_own_flags
from logforge.ingestion.hygiene.injection import ROLES, in_place
from logforge.ingestion.hygiene.inspection import Inspected, inspect
from logforge.ingestion.hygiene.redaction import ALLOWED, SECRETS_ONLY, Redaction, Secret
from logforge.schemas import EPISODES, MESSAGES, QUARANTINE, SECRETS, STEPS
from logforge.store import keyed_hash, pseudonym

OURS = frozenset(
    "episode_id source_id format parent_episode_id continues_episode_id source_kind ending locator result_locator role kind "
    "arguments_status repair result_status propensity_kind decision_key level dataset rule flags danger".split()
)
"""Text columns whose values are words, places and hashes of ours; all others hold the log's text."""
IDS = frozenset("native_id task_id group_id session_id user_id".split())
"""Columns of the log's ids, which tell episodes apart and are no part of any state."""
JSON = frozenset({"metadata", "arguments"})
"""Columns of JSON text."""
CUT = 200
"""An excerpt of this length was cut, perhaps within a secret."""

_TEXTS = frozenset({"VARCHAR", "JSON", "VARCHAR[]"})
_DANGLING = re.compile(r"[A-Za-z0-9_+/=.~-]{6,}$")


@dataclass(frozen=True)
class Hygiene:
    """How to clean: what is redacted, what is dangerous, which functions of the user's flag messages, and the store's key for
    hashes of secrets."""

    redaction: Redaction = SECRETS_ONLY
    dangers: Dangers = field(default_factory=Dangers)
    flag_with: tuple[str, ...] = ()
    key: bytes = field(default=b"", repr=False)


class Cleaned(NamedTuple):
    """What may be stored. `redactions` counts the secrets replaced in each source, those of a text that stands several times
    in an episode once."""

    tables: Tables
    quarantine: pa.Table
    secrets: pa.Table
    redactions: Counter[str]


class Column(NamedTuple):
    """A column with the log's text."""

    frame: str
    name: str
    as_json: bool


COLUMNS = tuple(
    Column(table.name, column.name, column.name in JSON)
    for table in (MESSAGES, STEPS, EPISODES, QUARANTINE)
    for column in table.columns
    if column.type in _TEXTS and column.name not in OURS
)
"""In the order in which a secret's first place is looked for."""

Frames = dict[str, pa.Table]


class _Found(NamedTuple):
    """What is not clean: among plain texts, and among JSON texts."""

    plain: dict[str, Inspected]
    json: dict[str, Inspected]

    def of(self, column: Column) -> dict[str, Inspected]:
        """What concerns a column."""
        return self.json if column.as_json else self.plain


class _Place(NamedTuple):
    """A row of a frame with its texts in a column."""

    column: Column
    row: int
    texts: tuple[str, ...]


def cleaned(tables: Tables, quarantine: pa.Table, how: Hygiene) -> Cleaned:
    """Clean the tables of one or more sources."""
    frames: Frames = {**tables._asdict(), "quarantine": _uncut(quarantine) if how.redaction else quarantine}
    found = _Found(
        *(
            inspect(_distinct(frames, as_json), redaction=how.redaction, as_json=as_json)
            for as_json in (False, True)
        )
    )
    secrets, redactions = rows_table(SECRETS, []), Counter[str]()
    if found.plain or found.json:
        frames, secrets, redactions = _rewritten(frames, found, how.key)
    messages = with_own_flags(frames["messages"], how.flag_with)
    steps = _with_danger(frames["steps"], how.dangers)
    return Cleaned(Tables(frames["episodes"], messages, steps), frames["quarantine"], secrets, redactions)


def _uncut(quarantine: pa.Table) -> pa.Table:
    """Excerpts without the beginning of a word that their cut went through: it may be half a key."""
    texts = quarantine["excerpt"].to_pylist()
    if all(len(text or "") < CUT for text in texts):
        return quarantine
    return _set(
        quarantine,
        "excerpt",
        [_DANGLING.sub("…", text) if text and len(text) >= CUT else text for text in texts],
    )


def _distinct(frames: Frames, as_json: bool) -> pl.Series:
    """The distinct texts of all JSON columns, or of all others."""
    columns = [frames[c.frame][c.name].combine_chunks() for c in COLUMNS if c.as_json == as_json]
    flat = [column.flatten() if pa.types.is_list(column.type) else column for column in columns]
    texts = pl.Series(
        pa.chunked_array([part for part in flat if len(part)], type=pa.string()), dtype=pl.String
    )
    return texts.drop_nulls().unique()


def _rewritten(frames: Frames, found: _Found, key: bytes) -> tuple[Frames, pa.Table, Counter[str]]:
    """The frames with what was found taken out, the rows of `secrets`, and how many were replaced in each source."""
    scopes = {name: _scopes(frame) for name, frame in frames.items()}
    dirty = [place for column in COLUMNS for place in _places(frames, column, found.of(column))]
    spread = Spread()
    for column, row, texts in dirty:
        for item in filter(None, map(found.of(column).get, texts)):
            spread.add(scopes[column.frame][row], item.secrets)
    ledger = Ledger(_sources(frames), key)
    changes: dict[Column, dict[int, tuple[str, ...]]] = defaultdict(dict)
    for column, row, texts in _in_order(dirty, _places_in(frames, scopes, spread.scopes())):
        scope, locator = scopes[column.frame][row], frames[column.frame]["locator"][row].as_py()
        made = []
        for text in texts:
            item = found.of(column).get(text) or Inspected(text)
            rest = spread.apply(scope, item.text, column.as_json)
            ledger.add(scope, locator, text, (*item.secrets, *rest.secrets, *item.allowed))
            made.append(_pseudonym(item, rest.text, key) if column.name in IDS else rest.text)
        changes[column][row] = tuple(made)
    cleaned = dict(frames)
    for column, rows in changes.items():
        cleaned[column.frame] = _changed(cleaned[column.frame], column, rows)
    cleaned["messages"] = _with_flags(cleaned["messages"], frames, dirty, found)
    return _with_prompt_versions(frames["messages"], cleaned), ledger.table(), ledger.redactions


def _pseudonym(item: Inspected, left: str, key: bytes) -> str:
    """An id that is nothing but a secret or an address stays apart from others: its placeholder bears the keyed hash."""
    alone = len(item.secrets) == 1 and left == item.secrets[0].placeholder
    return pseudonym(item.secrets[0].kind, item.secrets[0].value, key) if alone else left


def _scopes(frame: pa.Table) -> list[str]:
    """What each row belongs to: its episode; a row of `quarantine` without one stands alone."""
    return [name or f"#{row}" for row, name in enumerate(frame["episode_id"].to_pylist())]


def _sources(frames: Frames) -> dict[str, str]:
    """The source of each scope."""
    rows = [
        (_scopes(frames[name]), frames[name]["source_id"].to_pylist()) for name in ("quarantine", "episodes")
    ]
    return {scope: source for names, sources in rows for scope, source in zip(names, sources, strict=True)}


def _places(frames: Frames, column: Column, found: dict[str, Inspected]) -> Iterator[_Place]:
    """The rows of a column that hold something found."""
    if not found:
        return
    values = frames[column.frame][column.name].combine_chunks()
    keys = pa.array(list(found), type=pa.string())
    flat = values.flatten() if pa.types.is_list(values.type) else values
    hits = pc.indices_nonzero(pc.is_in(flat, value_set=keys))
    rows = pc.unique(pc.list_parent_indices(values).take(hits)) if flat is not values else hits
    for row in rows.to_pylist():
        yield _Place(column, row, _texts(values[row].as_py()))


def _texts(value: str | list[str | None]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(item or "" for item in value)


def _places_in(frames: Frames, scopes: dict[str, list[str]], wanted: frozenset[str]) -> Iterator[_Place]:
    """Every text of some scopes."""
    if not wanted:
        return
    for column in COLUMNS:
        values = frames[column.frame][column.name]
        for row, scope in enumerate(scopes[column.frame]):
            if scope in wanted and (value := values[row].as_py()):
                yield _Place(column, row, _texts(value))


def _in_order(*parts: Iterable[_Place]) -> list[_Place]:
    """Each place once, in the order of COLUMNS and rows."""
    places = {(COLUMNS.index(place.column), place.row): place for part in parts for place in part}
    return [places[key] for key in sorted(places)]


def _changed(frame: pa.Table, column: Column, rows: dict[int, tuple[str, ...]]) -> pa.Table:
    values = frame[column.name].to_pylist()
    for row, texts in rows.items():
        values[row] = list(texts) if isinstance(values[row], list) else texts[0]
    return _set(frame, column.name, values)


def _set(frame: pa.Table, name: str, values: list[Any]) -> pa.Table:
    index = frame.schema.get_field_index(name)
    return frame.set_column(
        index, frame.schema.field(name), pa.array(values, type=frame.schema.field(name).type)
    )


def _with_flags(messages: pa.Table, frames: Frames, dirty: Iterable[_Place], found: _Found) -> pa.Table:
    """The messages with what was found in them, and in the calls and results that they carry."""
    flags: dict[tuple[str, int], set[str]] = defaultdict(set)
    roles = frames["messages"]["role"].to_pylist()
    for column, row, texts in dirty:
        where = _position(frames, column, row)
        for item in filter(None, map(found.of(column).get, texts)):
            if where is not None and item.flags:
                heard = column.frame == "messages" and column.name == "content" and roles[row] in ROLES
                flags[where] |= in_place(item.flags, heard)
    if not flags:
        return messages
    ids, positions = messages["episode_id"].to_pylist(), messages["position"].to_pylist()
    return _set(
        messages,
        "flags",
        [sorted(flags[key]) or None if key in flags else None for key in zip(ids, positions, strict=True)],
    )


def _position(frames: Frames, column: Column, row: int) -> tuple[str, int] | None:
    """The message that a text belongs to, by episode and position."""
    frame = frames[column.frame]
    if column.frame == "messages":
        return frame["episode_id"][row].as_py(), frame["position"][row].as_py()
    if column.frame != "steps":
        return None
    name = "result_position" if column.name in ("result", "error_class") else "position"
    place = frame[name][row].as_py()
    return None if place is None else (frame["episode_id"][row].as_py(), place)


def _with_prompt_versions(before: pa.Table, cleaned: Frames) -> Frames:
    """The hash of a prompt that held a secret would let the secret be guessed: it becomes that of the redacted prompt, also
    where it names a policy."""
    first = pc.indices_nonzero(pc.equal(before["position"], 0))
    texts = (frame["content"].take(first).to_pylist() for frame in (before, cleaned["messages"]))
    hashes = {
        prompt_version(old): prompt_version(new)
        for old, new in zip(*texts, strict=True)
        if old and new and old != new
    }
    if not hashes:
        return cleaned
    episodes, steps = cleaned["episodes"], cleaned["steps"]
    versions = [hashes.get(version, version) for version in episodes["prompt_version"].to_pylist()]
    return {
        **cleaned,
        "episodes": _renamed(_set(episodes, "prompt_version", versions), hashes),
        "steps": _renamed(steps, hashes),
    }


def _renamed(frame: pa.Table, hashes: dict[str, str]) -> pa.Table:
    """Policies by the version of their redacted prompt."""
    names = {prompt_suffix(old): prompt_suffix(new) for old, new in hashes.items()}

    def renamed(policy: str | None) -> str | None:
        suffix = next((suffix for suffix in names if policy and policy.endswith(suffix)), None)
        return policy if policy is None or suffix is None else policy.removesuffix(suffix) + names[suffix]

    return _set(frame, "policy_id", [renamed(policy) for policy in frame["policy_id"].to_pylist()])


def _with_danger(steps: pa.Table, dangers: Dangers) -> pa.Table:
    rows = zip(
        steps["kind"].to_pylist(), steps["action"].to_pylist(), steps["arguments"].to_pylist(), strict=True
    )
    return _set(
        steps,
        "danger",
        [
            dangers.of_action(action, arguments) if kind == "tool" else None
            for kind, action, arguments in rows
        ],
    )


@dataclass
class Ledger:
    """The secrets that were replaced: how often, and where first. `sources` tells the source of each scope."""

    sources: dict[str, str]
    key: bytes = field(repr=False)
    redactions: Counter[str] = field(default_factory=Counter)
    _rows: dict[tuple[str, str, str, str], dict[str, Any]] = field(default_factory=dict)
    _counted: set[tuple[str, str]] = field(default_factory=set)

    def add(self, scope: str, locator: str, text: str, secrets: tuple[Secret, ...]) -> None:
        """Note what one text held; a text that stands several times in its scope counts once."""
        if not secrets or (scope, text) in self._counted:
            return
        self._counted.add((scope, text))
        self.redactions[self.sources[scope]] += sum(secret.rule != ALLOWED for secret in secrets)
        for secret in secrets:
            hashed = keyed_hash(secret.value, self.key)
            row = self._rows.setdefault(
                (scope, secret.kind, secret.rule, hashed), {"locator": locator, "count": 0}
            )
            row["count"] += 1

    def table(self) -> pa.Table:
        """The rows of `secrets`."""
        rows = [
            {
                "source_id": self.sources[scope],
                "episode_id": None if scope.startswith("#") else scope,
                "kind": kind,
                "rule": rule,
                "keyed_hash": hashed,
                **row,
            }
            for (scope, kind, rule, hashed), row in self._rows.items()
        ]
        return rows_table(SECRETS, rows)
