"""A webhook that keeps what it is sent, and answers what a test wants."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.http_servers import QuietHandler, http_server, running
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


@contextlib.contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            signature = self.headers.get("Stripe-Signature", "")
            receiver.received.append(Received(self.read_body(), signature))
            self.reply(receiver.statuses.pop(0) if receiver.statuses else 200)

    with running(http_server(Handler)) as url:
        receiver.url = f"{url}/webhooks/stripe"
        yield receiver
