"""A fake provider of bot challenges, which sends the replies that a test sets."""

import contextlib
import json
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from tests.support.http.servers import QuietHandler, http_server, running_server


@dataclass(frozen=True)
class ReceivedRequest:
    headers: dict[str, str]
    form: dict[str, str]


@dataclass
class ChallengeServer:
    url: str = ""
    status: int = 200
    body: bytes = b'{"success": true}'
    headers: dict[str, str] = field(default_factory=dict)
    drips: bool = False
    requests: list[ReceivedRequest] = field(default_factory=list)

    def set_reply(self, reply: object, status: int = 200) -> None:
        self.body = json.dumps(reply).encode()
        self.status = status


def _handler(server: ChallengeServer) -> type[QuietHandler]:
    class Handler(QuietHandler):
        def do_POST(self) -> None:
            server.requests.append(
                ReceivedRequest(dict(self.headers), dict(parse_qsl(self.read_body().decode())))
            )
            with contextlib.suppress(OSError):
                if server.drips:
                    self._drip()
                else:
                    self.reply(server.status, server.body, server.headers)

        def _drip(self) -> None:
            self.reply(server.status, b"", {"Content-Length": str(len(server.body))})
            for byte in server.body:
                self.wfile.write(bytes([byte]))
                time.sleep(0.1)

    return Handler


@contextlib.contextmanager
def running_challenge_server(context: ssl.SSLContext | None = None) -> Iterator[ChallengeServer]:
    """Run a fake provider of bot challenges until the block ends. ``context`` enables TLS."""
    server = ChallengeServer()
    listener = http_server(_handler(server))
    if context is not None:
        listener.socket = context.wrap_socket(listener.socket, server_side=True)
    scheme = "https" if context else "http"
    server.url = f"{scheme}://localhost:{listener.server_port}/siteverify"
    with running_server(listener):
        yield server
