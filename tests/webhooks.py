"""A webhook that keeps what it is sent, and answers what a test wants."""

import contextlib
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.stack import eventually


@dataclass(frozen=True)
class Received:
    body: bytes
    signature: str


@dataclass
class Receiver:
    url: str = ""
    # The statuses of the next answers; 200 once there are no more.
    statuses: list[int] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)

    def next(self, kind: str, about: str) -> Received:
        """The first delivery of that type of event that names this id; it is forgotten then."""
        named = f'"type": "{kind}"'.encode(), f'"{about}"'.encode()

        def arrived() -> Received | None:
            kept = tuple(self.received)
            return next((each for each in kept if all(n in each.body for n in named)), None)

        found = eventually(arrived, what=f"an event {kind}")
        assert isinstance(found, Received)
        self.received.remove(found)
        return found


def _handler(receiver: Receiver) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.received.append(Received(body, self.headers.get("Stripe-Signature", "")))
            self.send_response(receiver.statuses.pop(0) if receiver.statuses else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextlib.contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(receiver)) as listener:
        listener.daemon_threads = True
        receiver.url = f"http://127.0.0.1:{listener.server_address[1]}/webhooks/stripe"
        threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield receiver
        finally:
            listener.shutdown()
