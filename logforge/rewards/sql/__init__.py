"""A reward spec compiled to one DuckDB query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.rewards.sql.inputs import input_stages
    from logforge.rewards.sql.query import Scale, compile_query, paying_steps, used_columns, value, when

__all__ = ["Scale", "compile_query", "input_stages", "paying_steps", "used_columns", "value", "when"]

face(
    __name__,
    inputs="input_stages",
    query="Scale compile_query paying_steps used_columns value when",
)
