"""Writes the generated pages: docs/cli.md from the commands, docs/tables.md from schemas/tables.py. `make docs`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from logforge.cli import main
from logforge.schemas.tables import TABLES

HERE = Path(__file__).parent
NOTE = "<!-- written by docs/generate.py (`make docs`); change the source instead -->\n\n"


def cli_page() -> str:
    """Every command with its help."""
    parts = ["# The command line\n"]
    parts.append(
        "Data goes to stdout, talk to stderr. Every command takes `--json`. Exit codes: 0 fine · 1 findings (nothing "
        "was kept, something was quarantined under `--strict`, a check failed) · 2 usage · 3 an extra is missing · "
        "4 environment (store locked, disk full). Defaults come from `[tool.logforge]` or `logforge.toml`.\n"
    )
    for name, command in _commands(main, "logforge"):
        context = click.Context(command, info_name=name, max_content_width=100, terminal_width=100)
        parts.append(f"## {name}\n\n```text\n{command.get_help(context)}\n```\n")
    return NOTE + "\n".join(parts)


def _commands(group: click.Group, prefix: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from _commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def tables_page() -> str:
    """Every table with its columns."""
    parts = ["# The tables of the store\n"]
    parts.append(
        "One DuckDB file that any DuckDB client opens. Times are UTC. The view `transitions_latest` holds the rows of "
        "the newest dataset alone.\n"
    )
    for table in TABLES.values():
        rows = "\n".join(f"| `{c.name}` | {c.type.replace('|', '/')} | {c.meaning} |" for c in table.columns)
        parts.append(
            f"## {table.name}\n\nA row is {table.row}.\n\n| column | type | meaning |\n|---|---|---|\n{rows}\n"
        )
    return NOTE + "\n".join(parts)


PAGES = {"cli.md": cli_page, "tables.md": tables_page}


def stale() -> list[str]:
    """The pages that are not what their source says."""
    return [page for page, text in PAGES.items() if (HERE / page).read_text("utf-8") != text()]


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(f"run `make docs`: {', '.join(old)} out of date" if (old := stale()) else 0)
    for page, text in PAGES.items():
        (HERE / page).write_text(text(), "utf-8")
