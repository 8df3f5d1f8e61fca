"""The suite cannot reach another machine: what needs one would fail here, as it would on a machine without a network."""

import socket
import urllib.request

import pytest


@pytest.mark.parametrize(
    "url", ["http://example.com/", "http://93.184.216.34/", "https://huggingface.co/api"]
)
def test_other_machines_cannot_be_reached(url, monkeypatch):
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RuntimeError, match="in the network"):
        urllib.request.urlopen(url, timeout=1)


def test_this_one_can():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=1).close()
