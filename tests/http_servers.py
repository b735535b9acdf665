"""Servers of other people, played in a thread of the test's process."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from devstack import LOOPBACK


class QuietHandler(BaseHTTPRequestHandler):
    def read_body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def reply(
        self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def http_server(handler: type[BaseHTTPRequestHandler], port: int = 0) -> ThreadingHTTPServer:
    return ThreadingHTTPServer((LOOPBACK, port), handler)


@contextmanager
def running(server: ThreadingHTTPServer) -> Iterator[str]:
    """Serve until the block ends; yields the server's URL."""
    server.daemon_threads = True
    with server:
        # The interval is how long a shutdown may take.
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://{LOOPBACK}:{server.server_port}"
        finally:
            server.shutdown()
