"""Blocks of the pages, run as they are written."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path


def blocks(page):
    return BLOCK.findall(page.read_text("utf-8"))


def joined(found):
    """Python blocks that follow one another share their names."""
    for python, group in itertools.groupby(found, key=lambda block: block[0] == "python"):
        together = list(group)
        yield from [("python", "\n".join(text for _, text in together))] if python else together


def run(script, folder, commands):
    """Run a script in a folder, with the programs of another folder before all others."""
    env = {**os.environ, "PATH": f"{commands}:{BIN}:{os.environ['PATH']}", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, (
        f"{script}\n--- stdout\n{done.stdout[-2000:]}\n--- stderr\n{done.stderr[-3000:]}"
    )
    return done.stdout


def as_script(language, text):
    if language == "sql":
        return f"logforge sql - <<'SQL'\n{text}SQL\n"
    if language == "python":
        return f"python - <<'PY'\n{text}PY\n"
    lines = [line for line in text.splitlines() if not line.startswith(("pip install", "make "))]
    return "\n".join(lines) + "\n"


BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


BIN = Path(sys.executable).parent
