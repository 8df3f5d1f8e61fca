"""A reward spec compiled to one DuckDB query."""
