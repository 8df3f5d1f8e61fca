"""A command that is forked from the ready process does what it does when it is started: a page may not tell them apart."""

from __future__ import annotations

import os
import subprocess

import pytest

from support.places import SAMPLES
from support.ready_process import BIN, HEAVY


def ran(script, programs, folder, **environment):
    """What a script says on both streams, and its exit code."""
    env = {**os.environ, "PATH": f"{programs}:{BIN}:{os.environ['PATH']}", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=env | environment, capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr


SCRIPTS = {
    "data on stdout": "logforge formats",
    "a refusal with its exit code": "logforge check nowhere --store no/such/s.duckdb",
    "a wrong option": "logforge ingest --nonsense; echo $?",
    "a config file of the folder": "printf '[sql]\\nnonsense = 1\\n' > logforge.toml; logforge sql 'SELECT 1'; echo $?",
    "a script on stdin": "python - <<'PY'\nimport sys, os\nprint(sys.argv, os.getcwd(), __name__, sys.path[0] == '')\nPY",
    "a name for the script": "echo 'print(__file__, __name__)' | python -",
    "a module of the folder": "echo 'word = 7' > own.py; echo 'import own; print(own.word)' | python -",
    "a traceback": "echo '1 / 0' | python -; echo $?",
    "an exit code": "echo 'raise SystemExit(7)' | python -; echo $?",
    "a death": "echo 'import os; os.kill(os.getpid(), 9)' | { python -; } 2>/dev/null; echo $?",
    "what is printed and not flushed": 'echo \'print(1, end=""); import sys; print(2, end="", file=sys.stderr)\' | python -',
    "at the end": "echo 'import atexit; atexit.register(print, \"end\")' | python -",
    "the environment": 'export HERE=there; echo \'import os; print(os.environ["HERE"], os.getenv("GONE"))\' | python -',
    "two at once": "logforge formats --json | python -c 'import json, sys; print(len(json.load(sys.stdin)))'",
    "a reader that has enough": "echo 'print(\"x\\n\" * 100000)' | python - 2>/dev/null | head -n 1",
    "another program": "python -c 'print(3)'; python --version",
    "a warning": "echo 'import warnings; warnings.warn(\"w\")' | python -",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_does_what_a_started_one_does(commands, tmp_path, name):
    (tmp_path / "here").mkdir()
    ready = ran(SCRIPTS[name], commands, tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    (tmp_path / "here").mkdir()
    started = ran(SCRIPTS[name], BIN, tmp_path / "here")
    # our own frames stand above those of the script
    assert (ready[0], ready[1], ready[2].splitlines()[-1:]) == (
        started[0],
        started[1],
        started[2].splitlines()[-1:],
    )


def test_rows_come_by_a_pipe_and_a_store_stays(commands, tmp_path):
    log = SAMPLES / "openai_messages" / "support.jsonl"
    script = f"cat {log} | logforge ingest - && logforge sql 'SELECT sum(kept) > 0 AS any FROM sources' --csv"
    code, told, _ = ran(script, commands, tmp_path)
    assert (code, told.splitlines()[-2:]) == (0, ["any", "true"])


def test_it_has_the_libraries_and_nothing_of_logforge(commands, tmp_path):
    """What logforge imports by itself is a command's own doing."""
    script = f"python - <<'PY'\nimport sys\nprint(all(n in sys.modules for n in {HEAVY}), 'logforge' in sys.modules)\nPY\n"
    assert ran(script, commands, tmp_path)[1] == "True False\n"


def test_with_other_modules_it_is_started(commands, tmp_path):
    script = "echo 'import sys; print(\"torch\" in sys.modules)' | python -"
    assert ran(script, commands, tmp_path, PYTHONPATH=str(tmp_path))[1] == "False\n"


def test_each_is_a_process_of_its_own(commands, tmp_path):
    script = "for _ in 1 2; do echo 'import os, json; json.mark = 1; print(os.getpid())' | python -; done"
    again = "echo 'import json; print(hasattr(json, \"mark\"))' | python -"
    assert len(set(ran(script, commands, tmp_path)[1].split())) == 2
    assert ran(again, commands, tmp_path)[1] == "False\n"
