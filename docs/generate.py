"""Writes the generated pages: docs/cli.md from the commands, docs/tables.md from schemas/tables.py, docs/api.md from the
packages' `__init__` files, tables inside other pages (PAGES lists them), and the JSON schemas of reward specs, manifests and
rows of credit as text. `make docs`."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import click

from logforge.checks.store_laws import DATASET_LAWS, STORE_LAWS
from logforge.cli.commands import main
from logforge.core.stages import steps_of
from logforge.dataset.build.pipeline import STAGES
from logforge.evaluation.credit.methods import METHODS
from logforge.exports.catalogue import FORMATS
from logforge.exports.credit_text import row_schema
from logforge.learning.training.findings import ALARMS, FINDINGS
from logforge.learning.training.monitors import MEASURES
from logforge.learning.training.presets import PRESETS
from logforge.schemas.manifest import manifest_schema
from logforge.schemas.reward import RewardSpec
from logforge.schemas.rules import CATALOGUE
from logforge.schemas.tables import TABLES

WIDEST = 80
"""A constant's value that is longer is not shown."""
HERE = Path(__file__).parent
ROOT = HERE.parent
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
STEPS_BEGIN = "<!-- steps: written by docs/generate.py (`make docs`) from logforge/dataset/build/ -->"
STEPS_END = "<!-- end of steps -->"
ALARMS_BEGIN = (
    "<!-- alarms: written by docs/generate.py (`make docs`) from logforge/learning/training/findings.py -->"
)
ALARMS_END = "<!-- end of alarms -->"
FINDINGS_BEGIN = (
    "<!-- findings: written by docs/generate.py (`make docs`) from logforge/learning/training/findings.py -->"
)
FINDINGS_END = "<!-- end of findings -->"
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


class Definition(NamedTuple):
    """Where a public name is defined, what kind of thing it is, and what its docstring begins with."""

    file: Path
    kind: str
    meaning: str


def api_page() -> str:
    """Every package that lists public names, in the order of layers.txt, with each name."""
    parts = ["# Public names\n"]
    parts.append(
        "What each package gives to others, the lowest package first ([layers.txt](layers.txt)). Import a name from its "
        "package: `from logforge.shards import Shard`. Modules inside a package may change between versions. A name here "
        "leads to the module that defines it.\n"
    )
    for face in (ROOT / folder / "__init__.py" for folder in _floors() if (ROOT / folder).is_dir()):
        tree = ast.parse(face.read_text("utf-8"))
        if names := _public(tree):
            package = _dotted(face)
            rows = "\n".join(_api_row(name, _definition(package, name)) for name in names)
            title = (ast.get_docstring(tree) or "").partition("\n")[0]
            parts.append(f"## {package}\n\n{title}\n\n| name | kind | what it is |\n|---|---|---|\n{rows}\n")
    return NOTE + "\n".join(parts)


def _floors() -> list[str]:
    lines = (HERE / "layers.txt").read_text("utf-8").splitlines()
    return [folder for line in lines for folder in line.partition("#")[0].split()]


def _dotted(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    inside = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(inside if inside[0] == "logforge" else ("logforge", *inside))


def _file(module: str) -> Path:
    """The file of a module or package of the tree."""
    parts = module.split(".")
    path = ROOT.joinpath(*(parts[1:] if parts[1:2] and parts[1] in ("schemas", "connectors") else parts))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _public(tree: ast.Module) -> list[str]:
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(node, ast.Assign) and isinstance(target, ast.Name) and target.id == "__all__":
            return sorted(ast.literal_eval(node.value), key=str.lower)
    return []


def _definition(module: str, name: str) -> Definition:
    """What a module means by a name; what it imports, for types only or not, is looked up where it comes from."""
    inside = _file(f"{module}.{name}")
    if inside.exists():
        return Definition(inside, "module", ast.get_docstring(ast.parse(inside.read_text("utf-8"))) or "")
    file = _file(module)
    tree = ast.parse(file.read_text("utf-8"))
    for node, following in _statements(tree.body):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            kind = "class" if isinstance(node, ast.ClassDef) else "function"
            return Definition(file, kind, ast.get_docstring(node) or "")
        if isinstance(node, ast.Assign | ast.AnnAssign) and name in _assigned(node):
            kind = "constant" if name.isupper() else "type"
            return Definition(file, kind, _text_of(following) or _short_value(node))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _definition(node.module, alias.name)
    raise LookupError(f"{module} lists {name!r} in __all__, and neither defines nor imports it")


def _statements(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, ast.stmt | None]]:
    """Each statement of a module with the next one; also those that only a type checker sees."""
    for node, following in zip(body, [*body[1:], None], strict=True):
        yield node, following
        if isinstance(node, ast.If):
            yield from _statements(node.body)


def _assigned(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


def _text_of(node: ast.stmt | None) -> str:
    """The text below a constant that says what it is."""
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ):
        return node.value.value
    return ""


def _short_value(node: ast.Assign | ast.AnnAssign) -> str:
    """What a constant without a text is, where a line can hold it."""
    alone = isinstance(node, ast.AnnAssign) or isinstance(node.targets[0], ast.Name)
    value = ast.unparse(node.value) if node.value and alone else ""
    return f"`{value}`" if 0 < len(value) <= WIDEST else ""


def _api_row(name: str, found: Definition) -> str:
    paragraph = " ".join(found.meaning.partition("\n\n")[0].split())
    sentence = re.split(r"(?<=[.!?])\s+(?=[A-Z`])", paragraph)[0].replace("|", "\\|")
    return f"| [`{name}`](../{found.file.relative_to(ROOT).as_posix()}) | {found.kind} | {sentence} |"


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
    """The page as it is, with the tables of measures, alarms and findings written anew."""
    measures = "\n".join(f"| `{name}` | {meaning} |" for name, meaning in MEASURES.items())
    alarms = "\n".join(f"| `{rule.name}` | {rule.tests} | {rule.follows} |" for rule in ALARMS.values())
    page = _between(
        "doctor.md", MEASURES_BEGIN, f"| number | what it is |\n|---|---|\n{measures}", MEASURES_END
    )
    page = _put(page, ALARMS_BEGIN, f"| alarm | when | then |\n|---|---|---|\n{alarms}", ALARMS_END)
    found = f"| finding | what is seen | usual cause |\n|---|---|---|\n{_findings()}"
    return _put(page, FINDINGS_BEGIN, found, FINDINGS_END)


def _findings() -> str:
    """What the doctor finds; neighbours of one cause share a row."""
    rows = []
    for cause, rules in groupby(FINDINGS.values(), key=lambda rule: rule.follows):
        names, tests = zip(*((f"`{rule.name}`", rule.tests) for rule in rules), strict=True)
        rows.append(f"| {', '.join(names)} | {', or '.join(tests)} | {cause} |")
    return "\n".join(rows)


def training_page() -> str:
    """The page as it is, with the table of presets written anew."""
    rows = "\n".join(
        f"| `{name}` | {', '.join(f'{key} {value}' for key, value in one.settings.items()) or '—'} | {one.source} |"
        for name, one in PRESETS.items()
    )
    table = f"| preset | differs in | from |\n|---|---|---|\n{rows}"
    return _between("training.md", PRESETS_BEGIN, table, PRESETS_END)


def design_page() -> str:
    """The page as it is, with the table of the steps of a build written anew."""
    rows = "\n".join(
        f"| `{one.__name__}` | {step.what} | {step.scope}{', all of it' if step.whole else ''} | {step.takes or '—'} |"
        for one in STAGES
        for step in steps_of(one)
    )
    table = f"| stage | step | sees | is given |\n|---|---|---|---|\n{rows}"
    return _between("design.md", STEPS_BEGIN, table, STEPS_END)


def _between(page: str, begin: str, text: str, end: str) -> str:
    """The page as it is, with this text between its marks."""
    return _put((HERE / page).read_text("utf-8"), begin, text, end)


def _put(whole: str, begin: str, text: str, end: str) -> str:
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
    "api.md": api_page,
    "quarantine.md": quarantine_page,
    "returns.md": returns_page,
    "exports.md": exports_page,
    "check.md": check_page,
    "doctor.md": doctor_page,
    "training.md": training_page,
    "design.md": design_page,
    "../logforge/templates/reward.schema.json": reward_schema,
    "../logforge/templates/manifest.schema.json": lambda: json.dumps(manifest_schema(), indent=2) + "\n",
    "../logforge/templates/credit_text.schema.json": lambda: json.dumps(row_schema(), indent=2) + "\n",
}


def stale() -> list[str]:
    """The pages that are not what their source says."""
    return [
        page
        for page, text in PAGES.items()
        if not (HERE / page).exists() or (HERE / page).read_text("utf-8") != text()
    ]


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(f"run `make docs`: {', '.join(old)} out of date" if (old := stale()) else 0)
    for page, text in PAGES.items():
        (HERE / page).write_text(text(), "utf-8")
