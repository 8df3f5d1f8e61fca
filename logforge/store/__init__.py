"""The one DuckDB file: opened, committed, kept whole when a process is killed."""
