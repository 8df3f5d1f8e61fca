"""The layers point one way, and the command line loads nothing heavy."""

from __future__ import annotations

import ast
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from logforge.store.store import Store
from support.places import ROOT

MAY_IMPORT = {
    "schemas": ("logforge.schemas",),
    "connectors": ("logforge.schemas", "logforge.connectors"),
}
HEAVY = {
    "torch",
    "d3rlpy",
    "sentence_transformers",
    "sklearn",
    "matplotlib",
    "gym",
    "gymnasium",
    "pandera",
} | {"onnx", "onnxruntime", "tokenizers"}
OPTIONAL: set[str] = set()
"""Modules that need an extra at import time (for a base class, say). None does so far."""


def imports(path, top_only=False):
    tree = ast.parse(path.read_text("utf-8"))
    nodes = tree.body if top_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""


@pytest.mark.parametrize("layer", MAY_IMPORT)
def test_layers_point_one_way(layer):
    for path in (ROOT / layer).rglob("*.py"):
        for name in imports(path):
            if name.split(".")[0] == "logforge":
                assert name.startswith(MAY_IMPORT[layer]), f"{path.name} imports {name}"
            assert name.split(".")[0] not in {"duckdb", "polars", "torch"}, f"{path.name} imports {name}"


def test_no_module_imports_a_heavy_library_at_its_top():
    for folder in ("schemas", "connectors", "logforge"):
        for path in (ROOT / folder).rglob("*.py"):
            if path.stem not in OPTIONAL:
                heavy = {name.split(".")[0] for name in imports(path, top_only=True)} & HEAVY
                assert not heavy, f"{path} imports {heavy}"


def test_only_the_named_modules_write_to_disk():
    """Store and its key, shards, exports and reports (through atomic), the trainer's runs, `init`, and the
    conformance kit, the mapping that `inspect` writes and the sample that it tries it on, the unpacking of packed files and what comes through a pipe, in private folders of their own."""
    writers = set(
        """core/files store/store store/keyed_hashes store/block_journal shards/files shards/writer texts/pca learning/training/report
        learning/policies/bundle learning/policies/onnx evaluation/tuning/sweeping cli/project testing/laws ingestion/sources/containers
        ingestion/sources/unpacking ingestion/sources/pipes ingestion/workers inspecting/inspection inspecting/proof ingestion/handover report/pipeline report/bad_case_files
        exports/contrasts exports/job exports/mdp exports/minari exports/hugging_face envs/simulation""".split()
    )
    for path in (ROOT / "logforge").rglob("*.py"):
        text = path.read_text("utf-8")
        if any(
            mark in text for mark in ("write_text(", "write_bytes(", '"wb"', '"w"', "mkdir(", "os.replace")
        ):
            assert path.relative_to(ROOT / "logforge").with_suffix("").as_posix() in writers, path


DATA = {"polars", "duckdb", "numpy", "pyarrow"}
LEARNING = {"torch", "sklearn", "d3rlpy", "scipy", "pandera", "pydantic", "sqlglot", "onnxruntime"}


def loaded(line: str, folder: Path, **environment: str) -> set[str]:
    """The modules that a run of the command line in a fresh process loads."""
    code = (
        "import sys\nfrom logforge.cli.commands import main\n"
        "try:\n    main(sys.argv[1:], prog_name='logforge')\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "finally:\n    print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *shlex.split(line)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout, line
    return {name.split(".")[0] for name in done.stderr.split()} | set(done.stderr.split())


def test_help_loads_nothing_heavy(tmp_path):
    assert not loaded("--help", tmp_path) & (DATA | LEARNING)


@pytest.mark.parametrize(
    "environment",
    [
        {"_LOGFORGE_COMPLETE": "bash_source"},
        {"_LOGFORGE_COMPLETE": "bash_complete", "COMP_WORDS": "logforge in", "COMP_CWORD": "1"},
    ],
)
def test_completion_loads_nothing_heavy(tmp_path, environment):
    assert not loaded("", tmp_path, **environment) & (DATA | LEARNING)


BUILD_SETTINGS = {"logforge.dataset", "logforge.dataset.build", "logforge.dataset.states"} | {
    "logforge.dataset.build.config",
    "logforge.dataset.states.config",
    "logforge.dataset.states.goal_summary",
}
"""What the command line reads of a build for its options."""


def test_a_query_loads_the_store_and_no_more(tmp_path):
    """polars holds the rows of a query, and with it come numpy and pyarrow."""
    Store(tmp_path / "logforge.duckdb").close()
    found = loaded('sql "SELECT 1"', tmp_path)
    assert "duckdb" in found
    assert not found & (LEARNING | {"logforge.connectors", "logforge.rewards"})
    assert {name for name in found if name.startswith("logforge.dataset")} <= BUILD_SETTINGS
