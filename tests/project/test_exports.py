"""The public names are importable, callable, and the same as those promised."""

from __future__ import annotations

import subprocess
import sys

import logforge


def test_every_public_name_is_there_and_is_not_its_module():
    for name in logforge.__all__:
        assert callable(getattr(logforge, name)), name
        assert name in dir(logforge)


def test_names_stay_functions_after_their_modules_are_imported():
    code = (
        "import logforge.ingestion.pipeline, logforge.learning.training.pipeline, logforge.evaluation.pipeline, logforge.exports.pipeline, logforge.lineage.explanation, logforge\n"
        "assert all(callable(getattr(logforge, n)) for n in logforge.__all__), "
        "[n for n in logforge.__all__ if not callable(getattr(logforge, n))]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
