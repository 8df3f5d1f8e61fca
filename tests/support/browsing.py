"""A headless browser for the tests of pages: what it shows, what it says, and what it asks for."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

BROWSER = next(
    (
        found
        for name in ("chromium", "chromium-browser", "google-chrome", "chrome")
        if (found := shutil.which(name))
    ),
    None,
)
_QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-extensions", "--enable-logging=stderr", "--dump-dom",
    "--disable-features=OptimizationHints,MediaRouter,Translate",
)  # fmt: skip
_OWN = ("google", "gvt1.com", "gstatic")
"""Hosts that the browser itself asks, whatever the page."""


class Visit(NamedTuple):
    """The page as the browser has it after loading, what was said on its console, and the hosts it asked for something."""

    dom: str
    console: list[str]
    requests: list[str]


def visit(page: Path, profile: Path) -> Visit:
    """Open a file; every request over the network goes to a proxy of ours, which writes it down and refuses."""
    assert BROWSER is not None
    with _proxy() as (port, asked):
        done = subprocess.run(
            [BROWSER, *_QUIET, f"--user-data-dir={profile}", f"--proxy-server=127.0.0.1:{port}", "--proxy-bypass-list=<-loopback>", page.as_uri()],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return Visit(done.stdout, console, [line for line in asked if not any(host in line for host in _OWN)])


@contextmanager
def _proxy() -> Iterator[tuple[int, list[str]]]:
    asked: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                with client:
                    client.settimeout(2)
                    try:
                        line = client.recv(4096).split(b"\r\n")[0].decode("latin-1")
                        if not line:  # the browser ended before it asked for anything
                            continue
                        asked.append(line)
                        client.sendall(b"HTTP/1.1 502 no\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    except OSError:
                        continue

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1], asked
        server.shutdown(socket.SHUT_RDWR)
