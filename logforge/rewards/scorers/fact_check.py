"""Whether what a text says agrees with a table of facts that the user has.

A fact is a row: entity, attribute, value. A sentence states one when it names both the entity and the attribute; it is right
when it also holds the value (one of them, where the table has several). Names are compared as words, without case and
punctuation; a value that is a number, as a number.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import duckdb

from logforge.rewards.scorers.base import Ready, Resources, Score, Scorer, Texts, each
from logforge.schemas import InputError
from logforge.texts import numbers, tokens

_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_READERS = {".parquet": "read_parquet(?)", ".csv": "read_csv(?, all_varchar=true, header=true)"}
Words = tuple[str, ...]


class Fact(NamedTuple):
    """What a table says of an attribute of an entity: the values that are right, as words and, where they are, as numbers."""

    entity: Words
    attribute: Words
    values: tuple[Words, ...]
    amounts: tuple[float, ...]


class FactCheck(Scorer):
    """Right statements / statements that the table knows of."""

    name = "fact_check"

    table: str
    """A Parquet, CSV or DuckDB file, from where the command is run."""
    relation: str = "facts"
    """The name of the table in a DuckDB file."""
    entity: str = "entity"
    attribute: str = "attribute"
    value: str = "value"

    def ready(self, resources: Resources) -> Ready:
        """Reads the table. Raises InputError when that fails."""
        rows = self._rows()
        facts = _facts(rows)
        return Ready(self.version(rows), each(lambda texts: _score(facts, texts)))

    def _rows(self) -> list[tuple[str, str, str]]:
        path = Path(self.table)
        columns = ", ".join(
            f"CAST({_quoted(name)} AS VARCHAR)" for name in (self.entity, self.attribute, self.value)
        )
        reader = _READERS.get(path.suffix)
        if not path.is_file():
            raise InputError(
                self.table, "there is no such table of facts", remedy="name a file in the term's `table`"
            )
        try:
            with duckdb.connect() if reader else duckdb.connect(str(path), read_only=True) as con:
                source, values = (reader, [str(path)]) if reader else (_quoted(self.relation), [])
                rows = con.execute(f"SELECT DISTINCT {columns} FROM {source} ORDER BY ALL", values).fetchall()
        except duckdb.Error as error:
            remedy = "`table` is a Parquet, CSV or DuckDB file with the columns that `entity`, `attribute` and `value` name"
            raise InputError(self.table, str(error).splitlines()[0], remedy=remedy) from None
        return [
            (entity, attribute, value) for entity, attribute, value in rows if entity and attribute and value
        ]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _facts(rows: list[tuple[str, str, str]]) -> dict[str, list[Fact]]:
    """The facts by the first word of their entity."""
    values: defaultdict[tuple[Words, Words], list[str]] = defaultdict(list)
    for entity, attribute, value in rows:
        values[tuple(tokens(entity)), tuple(tokens(attribute))].append(value)
    found: defaultdict[str, list[Fact]] = defaultdict(list)
    for (named, of), texts in values.items():
        if named and of:
            amounts = tuple(numbers(text)[0] for text in texts if _is_number(text))
            words = tuple(tuple(tokens(text)) for text in texts if not _is_number(text))
            found[named[0]].append(Fact(named, of, words, amounts))
    return dict(found)


def _is_number(text: str) -> bool:
    """Whether a value is a number, apart from a currency or a percent sign."""
    return len(numbers(text)) == 1 and not re.search(r"[^\W\d_]", re.sub(r"(?<=\d)[eE](?=[-+\d])", "", text))


def _score(facts: dict[str, list[Fact]], texts: Texts) -> Score:
    verdicts = [verdict for sentence in _SENTENCE.split(texts[0]) for verdict in _verdicts(facts, sentence)]
    if not verdicts:
        return Score(None, reason="states nothing that the table knows")
    return Score(sum(verdicts) / len(verdicts))


def _verdicts(facts: dict[str, list[Fact]], sentence: str) -> Iterator[bool]:
    """Whether each fact that a sentence states is right."""
    words = tuple(tokens(sentence))
    for first in sorted(set(words) & facts.keys()):
        for fact in facts[first]:
            if _holds(words, fact.entity) and _holds(words, fact.attribute):
                yield any(_holds(words, value) for value in fact.values) or _names(sentence, fact)


def _holds(words: Words, part: Words) -> bool:
    size = len(part)
    return bool(part) and any(words[start : start + size] == part for start in range(len(words) - size + 1))


def _names(sentence: str, fact: Fact) -> bool:
    """Whether a sentence holds one of the fact's numbers; those in its names are no values."""
    if not fact.amounts:
        return False
    rest = list(numbers(sentence))
    for number in (*numbers(" ".join(fact.entity)), *numbers(" ".join(fact.attribute))):
        if number in rest:
            rest.remove(number)
    return any(
        abs(number - amount) <= 1e-9 * max(1.0, abs(amount)) for number in rest for amount in fact.amounts
    )
