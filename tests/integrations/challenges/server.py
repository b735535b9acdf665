"""A provider that answers whatever a test wants, to see what becomes of it."""

import contextlib
import http.server
import json
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import parse_qsl


@dataclass(frozen=True)
class Asked:
    headers: dict[str, str]
    form: dict[str, str]


@dataclass
class Server:
    url: str = ""
    status: int = 200
    body: bytes = b'{"success": true}'
    headers: dict[str, str] = field(default_factory=dict)
    drips: bool = False
    asked: list[Asked] = field(default_factory=list)

    def says(self, reply: object, status: int = 200) -> None:
        self.body = json.dumps(reply).encode()
        self.status = status


def _handler(server: Server) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["Content-Length"])).decode()
            server.asked.append(Asked(dict(self.headers), dict(parse_qsl(sent))))
            self.send_response(server.status)
            for name, value in server.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(server.body)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self._write()

        def _write(self) -> None:
            for byte in server.body if server.drips else ():
                self.wfile.write(bytes([byte]))
                time.sleep(0.1)
            if not server.drips:
                self.wfile.write(server.body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextlib.contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(server)) as listener:
        listener.daemon_threads = True
        listener.block_on_close = False
        if context is not None:
            listener.socket = context.wrap_socket(listener.socket, server_side=True)
        scheme = "https" if context else "http"
        server.url = f"{scheme}://localhost:{listener.server_address[1]}/siteverify"
        # The interval is how long a shutdown may take.
        threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield server
        finally:
            listener.shutdown()
