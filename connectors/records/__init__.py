"""Bytes to records: lines, members, documents, tables, and what is set aside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.connectors.records import json
    from logforge.connectors.records.base import (
        HEAD_BYTES,
        JSON_SUFFIXES,
        Connector,
        Head,
        TakesCompanions,
        look,
    )
    from logforge.connectors.records.brackets import deepest_of_first
    from logforge.connectors.records.catalogue import BUILT_IN
    from logforge.connectors.records.columns import column_keys, column_rows, holds_columns, plain
    from logforge.connectors.records.json import (
        MAX_DEPTH,
        NotJson,
        TooDeep,
        canonical,
        joined,
        loads,
        without_halves,
    )
    from logforge.connectors.records.json_members import LONG_BYTES, Member, members, pointer
    from logforge.connectors.records.msgpack import unpacked_value
    from logforge.connectors.records.pyliteral import Fields, NotLiteral, fields, literal
    from logforge.connectors.records.rejects import (
        as_one_record,
        at,
        described,
        excerpt,
        malformed,
        too_deep,
        too_long,
    )
    from logforge.connectors.records.repair import mend
    from logforge.connectors.records.source import BOM, NeedsWhole, Source, Span, elements
    from logforge.connectors.records.sqlite import SQLITE, Database, json_cell, open_database, sidecars
    from logforge.connectors.records.sse import stream_events
    from logforge.connectors.records.tables import columns_of, plain_rows, table_rows
    from logforge.connectors.records.text_file import read_text

__all__ = [
    "BOM", "BUILT_IN", "HEAD_BYTES", "JSON_SUFFIXES", "LONG_BYTES", "MAX_DEPTH", "SQLITE", "Connector",
    "Database", "Fields", "Head", "Member", "NeedsWhole", "NotJson", "NotLiteral", "Source", "Span",
    "TakesCompanions", "TooDeep", "as_one_record", "at", "canonical", "column_keys", "column_rows",
    "columns_of", "deepest_of_first", "described", "elements", "excerpt", "fields", "holds_columns",
    "joined", "json", "json_cell", "literal", "loads", "look", "malformed", "members", "mend",
    "open_database", "plain", "plain_rows", "pointer", "read_text", "sidecars", "stream_events",
    "table_rows", "too_deep", "too_long", "unpacked_value", "without_halves",
]  # fmt: skip

face(
    __name__,
    base="Connector HEAD_BYTES Head JSON_SUFFIXES TakesCompanions look",
    brackets="deepest_of_first",
    catalogue="BUILT_IN",
    columns="column_keys column_rows holds_columns plain",
    json="MAX_DEPTH NotJson TooDeep canonical joined loads without_halves",
    json_members="LONG_BYTES Member members pointer",
    msgpack="unpacked_value",
    pyliteral="Fields NotLiteral fields literal",
    rejects="as_one_record at described excerpt malformed too_deep too_long",
    repair="mend",
    source="BOM NeedsWhole Source Span elements",
    sqlite="Database SQLITE json_cell open_database sidecars",
    sse="stream_events",
    tables="columns_of plain_rows table_rows",
    text_file="read_text",
)
