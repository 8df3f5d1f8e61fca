"""A local server that answers like an OpenAI-compatible endpoint, or misbehaves as it is told."""

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def completion(content, model="stub-2026-01"):
    """The body of an answer."""
    return json.dumps({"model": model, "choices": [{"message": {"role": "assistant", "content": content}}]})


def embeddings(vectors, model="stub-2026-01"):
    """The body of an answer with vectors, the last one first: an endpoint need not keep the order."""
    items = [{"index": index, "embedding": list(vector)} for index, vector in enumerate(vectors)]
    return json.dumps({"model": model, "data": items[::-1]})


class Stub(ThreadingHTTPServer):
    """`script(number, text)` says what becomes of the request: a body, a status, or a word of `_Handler`."""

    daemon_threads = True

    def __init__(self, script):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script, self.requests, self.headers, self.times = script, [], [], []
        self.open_now = self.most_open = 0
        self.lock = threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, request, client_address):
        """A client that went away is none of ours."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            server.requests.append(body)
            server.headers.append(dict(self.headers))
            server.times.append(time.monotonic())
            number = len(server.requests)
            server.open_now += 1
            server.most_open = max(server.most_open, server.open_now)
        try:
            asked = body["input"] if "input" in body else body["messages"][1]["content"]
            self._do(server.script(number, asked))
        finally:
            with server.lock:
                server.open_now -= 1

    def _do(self, what):
        if what == "slow":
            time.sleep(0.6)
            what = completion("SCORE: 1")
        if what == "hang up":
            self.close_connection = True
        elif what == "cut":
            self._answer(200, completion("SCORE: 5"), cut=True)
        elif what == "redirect":
            self._answer(302, "", {"Location": "http://127.0.0.1:9/elsewhere"})
        elif isinstance(what, tuple):
            self._answer(what[0], "{}", what[1])
        elif isinstance(what, int):
            self._answer(what, json.dumps({"error": f"no: {self.headers.get('Authorization')}"}))
        else:
            self._answer(200, what)

    def _answer(self, status, body, headers=None, cut=False):
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            self.close_connection = True

    def log_message(self, *_):
        """Say nothing."""


@contextmanager
def stub(script):
    """A running server."""
    server = Stub(script)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
