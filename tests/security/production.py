"""A stack that is started as production is, and its callers, behind a proxy that ends their TLS."""

import contextlib
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import httpx

from devstack import LOOPBACK
from tests.contract.replies import data
from tests.contract.test_security_events import PATH
from tests.stack import LIMITS, Stack
from tests.visiting import Visitor

HOST = "news.example"
CONTACT = "mailto:security@news.example"
# What the stacks of other tests set, so that their many calls are not refused.
_OF_TESTS = (*LIMITS, "PRESSROOM_QUOTA_PAID", "PRESSROOM_REDIRECT_ORIGINS")
_SETTINGS = {
    "PRESSROOM_PUBLIC_URL": f"https://{HOST}",
    "PRESSROOM_TRUSTED_PROXIES": LOOPBACK,
    "PRESSROOM_API_DOCS": "false",
    "PRESSROOM_SECURITY_CONTACTS": CONTACT,
}


class TlsProxy(httpx.BaseTransport):
    """Takes what browsers send by https, and passes it on with the address that it came from."""

    def __init__(self, port: int, address: str) -> None:
        self._port = port
        self._address = address
        self._behind = httpx.HTTPTransport(verify=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert (request.url.scheme, request.url.host) == ("https", HOST)
        # A request of its own: the browser's cookies belong to the URL that it asked for. The head
        # keeps the name by which the browser knows the host.
        passed_on = httpx.Request(
            request.method,
            request.url.copy_with(scheme="http", host=LOOPBACK, port=self._port),
            headers=request.headers,
            stream=request.stream,
            extensions=request.extensions,
        )
        passed_on.headers["X-Forwarded-For"] = self._address
        passed_on.headers["X-Forwarded-Proto"] = "https"
        return self._behind.handle_request(passed_on)

    def close(self) -> None:
        self._behind.close()


@dataclass(frozen=True)
class Production:
    stack: Stack
    # Said the first half of a head when the stack was ready.
    half_said: socket.socket

    @contextlib.contextmanager
    def caller(
        self, key: str | None = None, *, address: str | None = None
    ) -> Iterator[httpx.Client]:
        """Calls with this key from this address, else from a network of their own."""
        with httpx.Client(
            base_url=f"https://{HOST}",
            transport=TlsProxy(self.stack.api_port, address or new_ip()),
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=60.0,
        ) as client:
            yield client

    @contextlib.contextmanager
    def visitor(self, address: str | None = None) -> Iterator[Visitor]:
        with self.caller(address=address) as client:
            yield Visitor(self.stack, client)


def new_ip() -> str:
    """In a network of its own."""
    return "2001:db8:" + ":".join(secrets.token_hex(2) for _ in range(6))


def start(stack: Stack) -> Iterator[Production]:
    stack.start_sandbox()
    # The product's own bounds.
    for name in _OF_TESTS:
        del stack.environment[name]
    stack.environment |= _SETTINGS
    stack.start_worker("mail", concurrency=4)
    stack.start_worker("bulk", "export", concurrency=1)
    stack.start_api()
    with socket.create_connection((LOOPBACK, stack.api_port), timeout=30) as half_said:
        half_said.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
        yield Production(stack, half_said)
    stack.stop()


def event_types(client: httpx.Client) -> set[str]:
    """The kinds of events that the owner is shown."""
    return {each["type"] for each in data(client.get(PATH))["items"]}
