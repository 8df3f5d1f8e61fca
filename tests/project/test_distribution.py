"""On the package index the name `logforge` is another project's: no text of ours tells anyone to install that one."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from support.places import DATA, ROOT

NAME = "logforge-rl"
INSTALLED = re.compile(
    r"(?:\b(?:pip|pipx|uv)\b[^\n|;&]*?\b(?:install|add|run)\b|\binstall with\b)[^\n]*?(?<![\w./@:-])logforge(?!-rl\b)(?=[\[\"'`\s=<>~!]|$)"
)
REQUIRED = re.compile(r"(?<![\w.-])logforge\[\w")
READ = (".py", ".md", ".toml", ".txt", ".yaml", ".yml", ".cfg", "Makefile", "run")


FOLDERS = (".ci", "benchmarks", "connectors", "docs", "logforge", "schemas", "tests")


def texts():
    files = [*ROOT.glob("*"), *(file for folder in FOLDERS for file in (ROOT / folder).rglob("*"))]
    ours = (
        file for file in files if file.is_file() and file.name.endswith(READ) and DATA not in file.parents
    )
    return [(str(file.relative_to(ROOT)), file.read_text("utf-8")) for file in ours if file != Path(__file__)]


@pytest.mark.parametrize("pattern", [INSTALLED, REQUIRED], ids=["installed", "required"])
def test_no_text_tells_anyone_to_install_the_other_project(pattern):
    found = [
        f"{name}: {line.strip()}"
        for name, text in texts()
        for line in text.splitlines()
        if pattern.search(line)
    ]
    assert not found


@pytest.mark.parametrize(
    "text",
    [
        "pip install logforge",
        "pip install -U 'logforge[train]'",
        'python -m pip install "logforge>=1"',
        "uv add logforge",
    ],
)
def test_the_search_finds_what_it_is_for(text):
    assert INSTALLED.search(text) or REQUIRED.search(text)


@pytest.mark.parametrize(
    "text",
    ["pip install 'logforge-rl[train]'", 'pip install ".[all]"', "pip install ./chatlog  # beside logforge"],
)
def test_the_search_leaves_our_own_name(text):
    assert not INSTALLED.search(text.split("  #")[0])
    assert not REQUIRED.search(text)


def test_the_metadata_has_our_own_name():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == NAME
    assert project["scripts"] == {"logforge": "logforge.cli.commands:main"}, "the command keeps its name"
