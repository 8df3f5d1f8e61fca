"""Texts of a given likeness."""

from __future__ import annotations

import random

import duckdb

from logforge.schemas.tables import EMBEDDINGS


def prose(seed, length=200):
    """Words in an order that no other seed gives."""
    return random.Random(seed).choices(WORDS, k=length)


def cache() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute(f"CREATE TABLE embeddings ({', '.join(f'{c.name} {c.type}' for c in EMBEDDINGS.columns)})")
    return con


WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprstv" for b in "aeiou" for c in "lmnrst"]
