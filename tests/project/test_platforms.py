"""What Windows lacks is asked for only where it is there; reading works without it. Simulated: no test here runs on Windows."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from logforge.ingestion.pipeline import ingest
from logforge.store.store import Store
from support.places import ROOT

LACKING = "fcntl resource pwd grp termios tty pty posix syslog crypt spwd nis".split()
ATTRIBUTES = """fork forkpty pread pwrite preadv pwritev posix_fallocate posix_fadvise sched_getaffinity getuid geteuid setsid
    killpg mkfifo statvfs register_at_fork memfd_create O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK O_SYNC""".split()

WINDOWS = f"""
import builtins, ctypes, importlib, importlib.abc, os, pkgutil, signal, sys, types

def names():
    import logforge
    found = pkgutil.walk_packages(logforge.__path__, "logforge.")
    return [item.name for item in found if item.name != "logforge.__main__"]

for name in names():  # what others wrote is loaded as the system that is here has it
    importlib.import_module(name)
for name in [name for name in sys.modules if name.split(".")[0] == "logforge" or name in {LACKING!r}]:
    del sys.modules[name]

class Lacking(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in {LACKING!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Lacking())
library = ctypes.CDLL
def loaded(name, *rest, **more):
    if name is None:
        raise TypeError("bad argument type")
    return library(name, *rest, **more)
ctypes.CDLL = loaded
for name in {ATTRIBUTES!r}:
    if hasattr(os, name):
        delattr(os, name)
del signal.SIGKILL, signal.SIGHUP
locks = []
sys.modules["msvcrt"] = types.SimpleNamespace(LK_LOCK=1, locking=lambda handle, mode, size: locks.append((mode, size)))
sys.platform = "win32"
"""


def on_windows(code: str, *arguments: object) -> str:
    """What some code prints in a process that lacks what Windows lacks."""
    line = [sys.executable, "-W", "ignore", "-c", WINDOWS + code, *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def made(tmp_path):
    path = tmp_path / "s.duckdb"
    with Store(path) as store:
        ingest(store, [ROOT / "sample_logs" / "openai_messages"])
        (count,) = store.con.sql("SELECT count(*) FROM episodes").fetchall()[0]
    return path, count


def test_every_module_imports_and_a_store_is_read(made):
    path, count = made
    code = """
for name in names():
    importlib.import_module(name)
from logforge.store.store import Store
with Store(sys.argv[1], read_only=True) as store:
    print(store.sql("SELECT count(*) AS n FROM episodes")["n"][0], len(list(store.episodes())))
"""
    assert on_windows(code, path).split() == [str(count)] * 2


def test_what_does_not_work_says_so(made):
    path, _ = made
    journal = path.with_name(f"{path.name}.blocks")
    journal.write_bytes(b"of a killed checkpoint")
    code = """
from logforge.schemas.errors import StoreError
from logforge.store.store import Store
from logforge.core.scratch_files import SpoolFile
def spool():
    SpoolFile().put(0, b"")
for call in (lambda: Store(sys.argv[1]), lambda: Store(sys.argv[1], read_only=True), spool):
    try:
        call()
    except StoreError as error:
        print(error.rule, error.exit_code, error.message, error.remedy)
"""
    told = on_windows(code, path).splitlines()
    assert len(told) == 3
    for line, what in zip(told, ("changing a store", "mending a store", "keeping on disk"), strict=True):
        assert line.startswith("not_on_windows 4 ")
        assert what in line
        assert "Linux" in line
    assert journal.read_bytes() == b"of a killed checkpoint"


def test_a_folder_takes_the_place_of_another(tmp_path):
    code = """
from pathlib import Path
from logforge.core.files import replaced_folder
from logforge.core.platforms import peak_megabytes
for text in ("one", "two"):
    with replaced_folder(Path(sys.argv[1])) as fresh:
        (fresh / "a").write_text(text)
print((Path(sys.argv[1]) / "a").read_text(), len(locks), peak_megabytes())
"""
    assert on_windows(code, tmp_path / "out").split() == ["two", "2", "None"]
    assert {item.name for item in tmp_path.iterdir()} == {"out", ".out.lock"}


def unguarded(tree: ast.Module) -> list[str]:
    """The modules only POSIX has that are imported at the top, but not under `if sys.platform`."""
    names = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    return [name for name in names if name in LACKING]


def test_no_module_imports_at_its_top_what_windows_lacks():
    assert unguarded(ast.parse("import os, fcntl\nif sys.platform != 'win32':\n    import pwd")) == ["fcntl"]
    for folder in ("schemas", "connectors", "logforge"):
        for path in (ROOT / folder).rglob("*.py"):
            assert not unguarded(ast.parse(path.read_text("utf-8"))), path
