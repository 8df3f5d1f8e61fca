"""The layers point one way, and the command line loads nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

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
    conformance kit, the unpacking of packed files and what comes through a pipe, in private folders of their own."""
    writers = set(
        """core/files store/store store/keyed_hashes store/block_journal shards/files shards/writer texts/pca learning/training/pipeline
        learning/policies/bundle learning/policies/onnx evaluation/tuning/sweeping cli/project testing/laws ingestion/sources/containers
        ingestion/sources/unpacking ingestion/sources/pipes ingestion/workers ingestion/handover report/pipeline report/bad_case_files
        exports/contrasts exports/job exports/mdp exports/minari exports/hugging_face envs/simulation""".split()
    )
    for path in (ROOT / "logforge").rglob("*.py"):
        text = path.read_text("utf-8")
        if any(
            mark in text for mark in ("write_text(", "write_bytes(", '"wb"', '"w"', "mkdir(", "os.replace")
        ):
            assert path.relative_to(ROOT / "logforge").with_suffix("").as_posix() in writers, path


def test_help_and_the_command_line_module_load_nothing_heavy():
    code = (
        "import sys\nfrom click.testing import CliRunner\nimport logforge.cli.commands\n"
        "assert CliRunner().invoke(logforge.cli.commands.main, ['--help']).exit_code == 0\n"
        "heavy = {'polars', 'torch', 'duckdb', 'pyarrow', 'numpy', 'pandera', 'sklearn', 'd3rlpy', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
