"""Commands that need not import the heavy libraries: a process that has them imported is forked for each.

Within `ready_commands()` a script's `logforge …` and `python -` are processes of their own, with the streams, the folder and
the environment that the script gives them. They import logforge themselves. Anything else (`python -m …`, another
PYTHONPATH) is started as usual.
"""

from __future__ import annotations

import array
import atexit
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import NoReturn

BIN = Path(sys.executable).parent

HEAVY = (
    "numpy",
    "polars",
    "duckdb",
    "pandera.polars",
    "pyarrow.parquet",
    "sqlglot",
    "sklearn.cluster",
    "sklearn.linear_model",
    "torch._dynamo",
)

CLIENT = """#!{python} -IS
import array, os, socket, sys, json

name, arguments = os.path.basename(sys.argv[0]), sys.argv[1:]
if os.environ.get("PYTHONPATH") != {path!r} or name == "python" and arguments != ["-"]:
    program = os.path.join({bin!r}, name)
    os.execv(program, [program, *arguments])
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    wanted = {{"name": name, "arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}}
    server.sendmsg([b"streams"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
    server.sendall(json.dumps(wanted).encode())
    server.shutdown(socket.SHUT_WR)
    code = int(server.recv(16) or 70)
sys.exit(code if code >= 0 else 128 - code)
"""


@contextmanager
def ready_commands() -> Iterator[Path]:
    """A folder for the front of PATH, with a `logforge` and a `python` that are quick to start."""
    with tempfile.TemporaryDirectory(prefix="logforge") as name:
        folder, address = Path(name), f"{name}/socket"
        for command in ("logforge", "python"):
            client = folder / command
            client.write_text(
                CLIENT.format(
                    python=BIN / "python", path=os.environ.get("PYTHONPATH"), bin=str(BIN), address=address
                ),
                "utf-8",
            )
            client.chmod(0o755)
        with subprocess.Popen(
            [sys.executable, "-P", __file__, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        ) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            yield folder
            server.stdin.close()  # it ends where whoever started it is gone


@dataclass(frozen=True)
class Command:
    """What a script asked for, and the streams it gave."""

    name: str
    arguments: list[str]
    folder: str
    environment: dict[str, str]
    streams: tuple[int, ...]

    def run(self) -> NoReturn:
        """Become the process that the script wanted: as if the interpreter had just been started."""
        for target, stream in enumerate(self.streams):
            os.dup2(stream, target)
            os.close(stream)
        sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)
        sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)
        sys.stderr = sys.__stderr__ = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
        os.environ.clear()
        os.environ.update(self.environment)
        os.chdir(self.folder)
        script = ModuleType("__main__")
        if self.name == "python":
            source = script.__file__ = "<stdin>"
            text = sys.stdin.read()
            sys.argv, sys.path[:0] = ["-"], [""]
        else:
            source = script.__file__ = str(BIN / self.name)
            text = Path(source).read_text("utf-8")
            sys.argv, sys.path[:0] = [source, *self.arguments], [str(BIN)]
        sys.modules["__main__"] = script
        code = _code_of(compile(text, source, "exec"), script)
        _leave(code, script)


def _code_of(program: CodeType, script: ModuleType) -> int:
    """Run a program as the interpreter does, and say with what code it ends."""
    try:
        exec(program, script.__dict__)
    except SystemExit as ending:
        if ending.code is None or isinstance(ending.code, int):
            return ending.code or 0
        print(ending.code, file=sys.stderr)
        return 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _leave(code: int, script: ModuleType) -> NoReturn:
    """End as the interpreter does, but without taking apart what was there before the fork: to touch it is to copy it."""
    threading._shutdown()
    atexit._run_exitfuncs()
    script.__dict__.clear()
    gc.collect()
    try:
        sys.stdout.flush()
    except OSError:
        code = 120
    sys.stderr.flush()
    os._exit(code)


def _received(connection: socket.socket) -> Command:
    size = array.array("i").itemsize
    _, sent, *_ = connection.recvmsg(len(b"streams"), socket.CMSG_SPACE(3 * size))
    streams = array.array("i")
    streams.frombytes(sent[0][2])
    with connection.makefile("rb") as file:
        return Command(**json.load(file), streams=tuple(streams))


def _next_command(address: str) -> Command | None:
    """Fork for every command until our stdin ends: each fork returns its command, the first process None."""
    running: dict[int, socket.socket] = {}
    ended, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken)
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as selector:
        listener.bind(address)
        listener.listen()
        for source in (0, ended, listener):
            selector.register(source, selectors.EVENT_READ)
        print("ready", flush=True)
        while True:
            for key, _ in selector.select():
                if key.fileobj == 0:
                    return None
                if key.fileobj == ended:
                    os.read(ended, 4096)
                    _tell_ends(running)
                    continue
                connection = listener.accept()[0]
                command = _received(connection)
                pid = os.fork()
                if pid == 0:
                    _forget_the_others(connection, *running.values())
                    os.close(ended)
                    os.close(woken)
                    return command
                running[pid] = connection
                for stream in command.streams:
                    os.close(stream)


def _tell_ends(running: dict[int, socket.socket]) -> None:
    """Tell whoever waits for a process that has ended how it ended."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with running.pop(pid) as connection:
            connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def _forget_the_others(*connections: socket.socket) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for connection in connections:
        connection.close()


if __name__ == "__main__":
    for module in HEAVY:
        importlib.import_module(module)
    gc.freeze()
    command = _next_command(sys.argv[1])
    if command is not None:
        command.run()
