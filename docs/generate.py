"""Writes the generated pages: docs/cli.md from the commands, docs/tables.md from schemas/tables.py, the table of rules in
docs/quarantine.md from schemas/rules.py, the JSON schemas of reward specs and of manifests from schemas/, and that of the rows
of credit as text. `make docs`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from logforge.checks.store_laws import DATASET_LAWS, STORE_LAWS
from logforge.cli.commands import main
from logforge.evaluation.credit.methods import METHODS
from logforge.exports.catalogue import FORMATS
from logforge.exports.credit_text import row_schema
from logforge.learning.training.monitors import MEASURES
from logforge.learning.training.presets import PRESETS
from logforge.schemas.manifest import manifest_schema
from logforge.schemas.reward import RewardSpec
from logforge.schemas.rules import CATALOGUE
from logforge.schemas.tables import TABLES

HERE = Path(__file__).parent
NOTE = "<!-- written by docs/generate.py (`make docs`); change the source instead -->\n\n"
RULES_BEGIN = "<!-- rules: written by docs/generate.py (`make docs`) from schemas/rules.py -->"
RULES_END = "<!-- end of rules -->"
METHODS_BEGIN = (
    "<!-- methods: written by docs/generate.py (`make docs`) from logforge/evaluation/credit/methods.py -->"
)
METHODS_END = "<!-- end of methods -->"
EXPORTS_BEGIN = (
    "<!-- formats: written by docs/generate.py (`make docs`) from logforge/exports/catalogue.py -->"
)
EXPORTS_END = "<!-- end of formats -->"
LAWS_BEGIN = "<!-- laws: written by docs/generate.py (`make docs`) from logforge/checks/store_laws.py -->"
LAWS_END = "<!-- end of laws -->"
MEASURES_BEGIN = (
    "<!-- measures: written by docs/generate.py (`make docs`) from logforge/learning/training/monitors.py -->"
)
MEASURES_END = "<!-- end of measures -->"
PRESETS_BEGIN = (
    "<!-- presets: written by docs/generate.py (`make docs`) from logforge/learning/training/presets.py -->"
)
PRESETS_END = "<!-- end of presets -->"


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


def quarantine_page() -> str:
    """The page as it is, with the table of rules written anew."""
    rows = "\n".join(f"| `{r.name}` | {r.level} | {r.meaning} | {r.remedy} |" for r in CATALOGUE.values())
    table = f"| rule | level | meaning | remedy |\n|---|---|---|---|\n{rows}"
    return _between("quarantine.md", RULES_BEGIN, table, RULES_END)


def returns_page() -> str:
    """The page as it is, with the table of the methods of credit written anew."""
    rows = "\n".join(
        f"| `{m.name}` | {m.meaning} | {m.needs} | {'yes' if m.sums else 'no'} |" for m in METHODS.values()
    )
    table = f"| method | a step gets | needs | sums to the rewards |\n|---|---|---|---|\n{rows}"
    return _between("returns.md", METHODS_BEGIN, table, METHODS_END)


def check_page() -> str:
    """The page as it is, with the tables of the laws written anew."""
    parts = []
    for title, laws in (("The whole store", STORE_LAWS), ("Each dataset", DATASET_LAWS)):
        rows = "\n".join(f"| `{law.rule}` | {law.meaning} | {law.remedy} |" for law in laws)
        parts.append(f"### {title}\n\n| law | what it demands | when it is broken |\n|---|---|---|\n{rows}")
    return _between("check.md", LAWS_BEGIN, "\n\n".join(parts), LAWS_END)


def exports_page() -> str:
    """The page as it is, with the table of formats written anew."""
    rows = "\n".join(
        f"| `{f.name}` | {f.writes} | {f.keeps} | {f.loses} | {f.loads} |" for f in FORMATS.values()
    )
    table = f"| format | what is written | keeps | loses | who loads it |\n|---|---|---|---|---|\n{rows}"
    return _between("exports.md", EXPORTS_BEGIN, table, EXPORTS_END)


def doctor_page() -> str:
    """The page as it is, with the table of measures written anew."""
    rows = "\n".join(f"| `{name}` | {meaning} |" for name, meaning in MEASURES.items())
    return _between("doctor.md", MEASURES_BEGIN, f"| number | what it is |\n|---|---|\n{rows}", MEASURES_END)


def training_page() -> str:
    """The page as it is, with the table of presets written anew."""
    rows = "\n".join(
        f"| `{name}` | {', '.join(f'{key} {value}' for key, value in one.settings.items()) or '—'} | {one.source} |"
        for name, one in PRESETS.items()
    )
    table = f"| preset | differs in | from |\n|---|---|---|\n{rows}"
    return _between("training.md", PRESETS_BEGIN, table, PRESETS_END)


def _between(page: str, begin: str, text: str, end: str) -> str:
    """The page as it is, with this text between its marks."""
    whole = (HERE / page).read_text("utf-8")
    start = whole.index(begin) + len(begin)
    return f"{whole[:start]}\n\n{text}\n\n{whole[whole.index(end) :]}"


def reward_schema() -> str:
    """The JSON schema of a reward spec, for editors."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **RewardSpec.model_json_schema()}
    return json.dumps(_closed(schema), indent=2, ensure_ascii=False) + "\n"


def _closed(node: Any) -> Any:
    """Without titles that repeat the keys; names that do not match their pattern are refused."""
    if isinstance(node, list):
        return [_closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: _closed(item) for key, item in node.items() if key != "title" or not isinstance(item, str)}
    return {**kept, "additionalProperties": False} if "patternProperties" in kept else kept


PAGES = {
    "cli.md": cli_page,
    "tables.md": tables_page,
    "quarantine.md": quarantine_page,
    "returns.md": returns_page,
    "exports.md": exports_page,
    "check.md": check_page,
    "doctor.md": doctor_page,
    "training.md": training_page,
    "../logforge/templates/reward.schema.json": reward_schema,
    "../logforge/templates/manifest.schema.json": lambda: json.dumps(manifest_schema(), indent=2) + "\n",
    "../logforge/templates/credit_text.schema.json": lambda: json.dumps(row_schema(), indent=2) + "\n",
}


def stale() -> list[str]:
    """The pages that are not what their source says."""
    return [page for page, text in PAGES.items() if (HERE / page).read_text("utf-8") != text()]


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(f"run `make docs`: {', '.join(old)} out of date" if (old := stale()) else 0)
    for page, text in PAGES.items():
        (HERE / page).write_text(text(), "utf-8")
