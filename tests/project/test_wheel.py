"""The wheel holds what the tree holds, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile

from support.places import ROOT

ROOMS = {"logforge": "logforge", "schemas": "logforge/schemas", "connectors": "logforge/connectors"}
"""The folders that are installed, and where."""


def test_the_wheel_holds_the_tree(tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    expected = set()
    for room, place in ROOMS.items():
        shutil.copytree(ROOT / room, tree / room, ignore=shutil.ignore_patterns("__pycache__"))
        files = (file for file in (tree / room).rglob("*") if file.is_file())
        expected |= {f"{place}/{file.relative_to(tree / room).as_posix()}" for file in files}
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, tree]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == expected
    assert {"logforge/py.typed", "logforge/schemas/__init__.py", "logforge/connectors/__init__.py"} <= held
