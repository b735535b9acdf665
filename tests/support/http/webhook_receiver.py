"""A receiver of an owner's webhooks, which records all requests and sends chosen responses."""

import base64
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2
from standardwebhooks import Webhook

from devstack.harness.stack import Owner, Stack
from services.feed import catalogue
from services.feed.catalogue import FeedEventType
from tests.support.http.replies import data
from tests.support.http.servers import QuietHandler, http_server, running_server

CREATED = FeedEventType.SUBSCRIPTION_CREATED
LEFT = FeedEventType.SUBSCRIPTION_LEFT


@dataclass(frozen=True)
class Hook:
    """A webhook request that the receiver has recorded."""

    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def content(self) -> Any:
        return json.loads(self.body)

    def check(self, secret: str) -> None:
        """Raise ``WebhookVerificationError`` if the signature of the request is wrong."""
        Webhook(secret).verify(self.body, self.headers)


# The HTTP status and the headers of a response.
Answer = tuple[int, dict[str, str]]
OK: Answer = (200, {})


@dataclass
class HookReceiver:
    url: str = ""
    answer: Callable[[Hook], Answer] = lambda _: OK
    body: bytes = b"taken"
    # Whether the receiver closes the connection after each response, although the response has no
    # `Connection: close` header.
    closes_silently: bool = False
    hooks: list[Hook] = field(default_factory=list)
    connections: int = 0

    @property
    def ids(self) -> list[str]:
        return [each.id for each in self.hooks]


def _handler_of(receiver: HookReceiver) -> type[QuietHandler]:
    class Handler(QuietHandler):
        # With HTTP/1.1, a connection stays open after a response.
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            receiver.connections += 1

        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            body = self.rfile.read(size)
            if len(body) < size:
                # The worker was killed while it sent the request. Don't record the incomplete
                # request.
                self.close_connection = True
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            hook = Hook(headers, body, time.monotonic())
            receiver.hooks.append(hook)
            status, response_headers = receiver.answer(hook)
            self.reply(status, receiver.body, response_headers)
            self.close_connection = receiver.closes_silently

    return Handler


@contextlib.contextmanager
def running_receiver(port: int = 0) -> Iterator[HookReceiver]:
    receiver = HookReceiver()
    with running_server(http_server(_handler_of(receiver), port)) as url:
        receiver.url = f"{url}/hook"
        yield receiver


def new_endpoint(
    client: httpx2.Client, url: str, *types: FeedEventType, **more: object
) -> dict[str, Any]:
    body = {"url": url, "types": list(types or (CREATED, LEFT)), **more}
    endpoint: dict[str, Any] = data(client.post("/webhook-endpoints", json=body))
    assert len(base64.b64decode(endpoint["secret"].removeprefix("whsec_"))) == 32
    return endpoint


def announce_events(
    stack: Stack,
    owner: Owner,
    kind: FeedEventType = CREATED,
    *,
    list_id: int | None = None,
    count: int = 1,
) -> None:
    """Write events to the owner's feed, each in a separate transaction."""
    for _ in range(count):
        with stack.resources.unit_of_work() as uow:
            catalogue.announce_event(
                uow, owner.account_id, kind, list_id=list_id, user_id=owner.user_id, via="login"
            )


def event_ids(stack: Stack, owner: Owner, *types: FeedEventType) -> list[str]:
    """Return the ids of the owner's feed events of these types, in the order of the feed."""
    rows = stack.query(
        "SELECT id FROM feed_events WHERE user_id = %s AND type = ANY(%s) ORDER BY place, id",
        owner.user_id,
        [each.value for each in types or (CREATED, LEFT)],
    )
    return [f"evt_{number}" for (number,) in rows]


def end_retry_pauses(stack: Stack, endpoint_id: int) -> None:
    """Make all pending deliveries of the endpoint due now, without the pause before a retry."""
    # Lock the endpoint before its deliveries, as the workers do, to avoid a deadlock.
    stack.query(
        "UPDATE webhook_endpoints SET due_at = now() WHERE id = %s;"
        "UPDATE webhook_deliveries SET due_at = now()"
        " WHERE status = 'pending' AND endpoint_id = %s",
        endpoint_id,
        endpoint_id,
    )
