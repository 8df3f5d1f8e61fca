"""How the modules hang together, read from their imports: floors, circles, faces, and how full a folder is."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from support.places import ROOT

TOPS = {"logforge": "logforge", "schemas": "logforge.schemas", "connectors": "logforge.connectors"}
LAYERS = ROOT / "docs" / "layers.txt"


class Arrow(NamedTuple):
    """A module, one that it imports, the name that it takes (None: the module itself), and the package it asked for it."""

    importer: str
    target: str
    name: str | None
    asked: str


@cache
def modules() -> dict[str, Path]:
    """Every module and package by its dotted name."""
    found = {}
    for top, package in TOPS.items():
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = [*package.split("."), *path.relative_to(ROOT / top).with_suffix("").parts]
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def is_package(module: str) -> bool:
    """Whether it is a folder's `__init__`."""
    return modules()[module].name == "__init__.py"


def room(module: str) -> str:
    """The package that a module lies in; a package's own."""
    return module if is_package(module) else module.rpartition(".")[0]


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_text("utf-8"))


@cache
def face(package: str) -> Mapping[str, str]:
    """The names of a package's `__init__` as type checkers see them, with the module that each is imported from."""
    found = {}
    typed = [node for node in _tree(package).body if isinstance(node, ast.If)]
    for node in (inner for branch in typed for inner in branch.body):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package + "."):
            found.update({alias.name: str(node.module) for alias in node.names})
        elif isinstance(node, ast.ImportFrom) and node.module == package:
            found.update({alias.name: f"{package}.{alias.name}" for alias in node.names})
    return found


def written(package: str) -> list[str]:
    """`__all__` as it is written."""
    for node in _tree(package).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


@cache
def arrows() -> tuple[Arrow, ...]:
    """Every import of one module by another, lazy and type-only ones too; names of a face lead to the module behind it."""
    return tuple(arrow for module in modules() if not is_package(module) for arrow in _arrows(module))


def _arrows(module: str) -> Iterator[Arrow]:
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import):
            yield from (Arrow(module, a.name, None, a.name) for a in node.names if a.name in modules())
        elif isinstance(node, ast.ImportFrom) and node.module in modules():
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in modules():
                    yield Arrow(module, whole, None, node.module)
                else:
                    yield Arrow(module, _behind(node.module, alias.name), alias.name, node.module)


def _behind(module: str, name: str) -> str:
    while is_package(module) and name in face(module):
        module = face(module)[name]
    return module


@cache
def floors() -> dict[str, int]:
    """The packages of docs/layers.txt by the number of their floor."""
    lines = [line.split("#")[0].split() for line in LAYERS.read_text("utf-8").splitlines()]
    named = [[_package(folder) for folder in line] for line in lines if line]
    return {package: floor for floor, line in enumerate(named) for package in line}


def _package(folder: str) -> str:
    top, *rest = folder.strip("/").split("/")
    return ".".join([TOPS[top], *rest])


def floor_room(module: str) -> str:
    """What of docs/layers.txt a module belongs to: itself, or the nearest package above it."""
    package = module if module in floors() else room(module)
    while package not in floors():
        package = package.rpartition(".")[0]
    return package


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The strongly connected parts of more than one node (Tarjan)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in number:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == number[node]:
            part = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            found.extend([sorted(part)] if len(part) > 1 else [])

    for node in sorted(graph):
        if node not in number:
            visit(node)
    return found


def file_graph() -> dict[str, set[str]]:
    """Which module imports which."""
    graph: dict[str, set[str]] = defaultdict(set)
    for arrow in arrows():
        if arrow.importer != arrow.target:
            graph[arrow.importer].add(arrow.target)
    return graph


@cache
def documented() -> frozenset[str]:
    """Every word of the pages that people wrote: the list of public names is generated and does not count."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    texts = (page.read_text("utf-8") for page in pages if page.name != "api.md")
    return frozenset(word for text in texts for word in re.findall(r"\w+", text))
