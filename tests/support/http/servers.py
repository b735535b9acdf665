"""Runs fake servers of other companies in a thread of the test's process."""

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import uvicorn
from fastapi import FastAPI

from devstack import LOOPBACK
from devstack.harness.polling import eventually


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
def running_server(server: ThreadingHTTPServer) -> Iterator[str]:
    """Run a server until the block ends, and yield its URL."""
    server.daemon_threads = True
    with server:
        # The server checks every 0.01 s whether it must stop, because Python's default of 0.5 s
        # would delay the end of each test.
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://{LOOPBACK}:{server.server_port}"
        finally:
            server.shutdown()


@contextmanager
def silent_server() -> Iterator[str]:
    """Run a server that accepts connections and never answers, and yield its host and port."""
    with socket.create_server((LOOPBACK, 0), backlog=512) as server:
        yield f"{LOOPBACK}:{server.getsockname()[1]}"


@contextmanager
def trickling_server(head: bytes, drip: bytes) -> Iterator[str]:
    """Run a server that sends ``head``, and then ``drip`` again and again. Yield its URL."""
    stop = threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(65536)
            connection.sendall(head)
            while not stop.wait(0.05):
                connection.sendall(drip)

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server((LOOPBACK, 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"http://{LOOPBACK}:{listener.getsockname()[1]}"
        finally:
            stop.set()


@dataclass
class Listener:
    """A server that sends the same answer on each connection, and counts the connections."""

    address: str = LOOPBACK
    answer: bytes = b""
    connections: int = 0
    calls: list[bytes] = field(default_factory=list)
    port: int = 0

    @contextmanager
    def listening(self) -> Iterator["Listener"]:
        with closing(socket.create_server((self.address, self.port))) as server:
            self.port = server.getsockname()[1]
            threading.Thread(target=self._serve, args=(server,), daemon=True).start()
            yield self

    def _serve(self, server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            self.connections += 1
            with connection, suppress(OSError):
                self.calls.append(connection.recv(65_536))
                connection.sendall(self.answer)


@contextmanager
def serving_app(app: FastAPI) -> Iterator[str]:
    # When the block ends, wait at most one second for responses in progress, because the test no
    # longer needs them.
    config = uvicorn.Config(app, LOOPBACK, 0, log_config=None, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        eventually(lambda: server.started, what="the application")
        yield f"http://{LOOPBACK}:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
