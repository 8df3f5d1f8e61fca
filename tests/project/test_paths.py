"""Files, modules and names that the pages, docstrings and comments speak of are there."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from functools import cache

import pytest

from support.places import ROOT, SAMPLES

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    SAMPLES / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
TOPS = ("logforge", "connectors", "schemas", "tests", "benchmarks", "docs")
PATH = re.compile(rf"(?<![\w/.-])(?:{'|'.join(TOPS)})/[a-z0-9_/-]+\.(?:py|md|txt)\b")
SIBLING = re.compile(r"(?<![\w/.-])[a-z_0-9]+\.py\b")
DOTTED = re.compile(r"(?<![\w./-])logforge(?:\.\w+)+")
IMPORT = re.compile(r"from (logforge[\w.]*) import (\([^)]*\)|[^\n`]+)")
FILES = {"duckdb", "toml"}
"""What `logforge.` begins besides modules: the names of a store and of a config file."""
GROUPS = {"logforge.scorers", "logforge.connectors"}
"""Entry-point groups."""


def spoken(file):
    """The docstrings and comments of a Python file."""
    text = file.read_text("utf-8")
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.value.value
    yield from (
        token.string
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    )


def told():
    """Every file that speaks of others, with its text."""
    for page in PAGES:
        yield page, page.read_text("utf-8")
    for top in TOPS:
        for file in sorted((ROOT / top).rglob("*.py")):
            yield file, "\n".join(spoken(file))


TOLD = list(told())


@cache
def file_of(module):
    """The file of a module or package, None where there is none."""
    parts = module.split(".")
    path = ROOT.joinpath(*(parts[1:] if parts[1:2] in (["connectors"], ["schemas"]) else parts))
    files = [path / "__init__.py", path.with_suffix(".py")]
    return next((file for file in files if file.exists()), None)


@cache
def names_of(file):
    """What a module defines or imports; of a package only what its `__all__` lists. None: a package without one."""
    tree = ast.parse(file.read_text("utf-8"))
    found = set()
    inside = [part for node in tree.body if isinstance(node, ast.If) for part in node.body]
    for node in [*tree.body, *inside]:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
            if file.name == "__init__.py" and "__all__" in names:
                return set(ast.literal_eval(node.value))
            found |= names
    return None if file.name == "__init__.py" else found


def is_there(dotted):
    """Whether a dotted name leads to a module, or to a name of one."""
    parts = dotted.split(".")
    if parts[1] in FILES or dotted in GROUPS:
        return True
    size = next(n for n in range(len(parts), 0, -1) if file_of(".".join(parts[:n])))
    if size == len(parts):
        return True
    names = names_of(file_of(".".join(parts[:size])))
    return names is None or parts[size] in names


def test_every_path_is_there():
    missing = [
        f"{file.relative_to(ROOT)}: {path}"
        for file, text in TOLD
        for path in PATH.findall(text)
        if not (ROOT / path).exists() and not (file.parent / path).exists()
    ]
    assert not missing


def test_a_module_named_without_a_folder_is_in_the_same_folder():
    missing = [
        f"{file.relative_to(ROOT)}: {name}"
        for file, text in TOLD
        if file.relative_to(ROOT).parts[0] in ("logforge", "connectors", "schemas")
        for name in SIBLING.findall(text)
        if not (file.parent / name).exists()
    ]
    assert not missing


def test_every_dotted_name_is_there():
    missing = [
        f"{file.relative_to(ROOT)}: {name}"
        for file, text in TOLD
        for name in DOTTED.findall(text)
        if not is_there(name)
    ]
    assert not missing


def test_pages_import_from_packages_and_only_what_these_give():
    wrong = []
    for page in PAGES:
        for module, names in IMPORT.findall(page.read_text("utf-8")):
            file = file_of(module)
            for name in re.findall(r"\w+", names.partition("#")[0]):
                if (
                    file is None
                    or file.name != "__init__.py"
                    or not (is_there(f"{module}.{name}") or file_of(f"{module}.{name}"))
                ):
                    wrong.append(f"{page.name}: {name} of {module}")
    assert not wrong


@pytest.mark.parametrize(
    "dotted", ["logforge.no_such_room", "logforge.no_such_name", "logforge.core.files.nothing"]
)
def test_what_is_not_there_is_found(dotted):
    assert not is_there(dotted)
