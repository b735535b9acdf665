"""What an API that is started as production is withstands by its settings: the product's bounds.

The files beside this one try the attacks that no setting changes.
"""

import contextlib
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx2
import pytest

from devstack import LOOPBACK
from devstack.harness.opening import RATE_LIMIT_SETTINGS
from devstack.harness.stack import Stack
from tests.support.http.replies import problem
from tests.support.people.visiting import Visitor, new_account
from tests.support.security.attackers import new_address

HOST = "news.example"
CONTACT = "mailto:security@news.example"
# What the stacks of other tests set, so that their many calls are not refused.
_OF_TESTS = (*RATE_LIMIT_SETTINGS, "PRESSROOM_QUOTA_PAID", "PRESSROOM_REDIRECT_ORIGINS")
_SETTINGS = {
    "PRESSROOM_PUBLIC_URL": f"https://{HOST}",
    "PRESSROOM_TRUSTED_PROXIES": LOOPBACK,
    "PRESSROOM_API_DOCS": "false",
    "PRESSROOM_SECURITY_CONTACTS": CONTACT,
}


class TlsProxy(httpx2.BaseTransport):
    """Takes what browsers send by https, and passes it on with the address that it came from."""

    def __init__(self, port: int, address: str) -> None:
        self._port = port
        self._address = address
        self._behind = httpx2.HTTPTransport(verify=False)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        assert (request.url.scheme, request.url.host) == ("https", HOST)
        # A request of its own: the browser's cookies belong to the URL that it asked for. The head
        # keeps the name by which the browser knows the host.
        passed_on = httpx2.Request(
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
    def caller(self) -> Iterator[httpx2.Client]:
        """Calls from a network of its own."""
        with httpx2.Client(
            base_url=f"https://{HOST}",
            transport=TlsProxy(self.stack.api_port, new_address()),
            timeout=60.0,
        ) as client:
            yield client

    @contextlib.contextmanager
    def visitor(self) -> Iterator[Visitor]:
        with self.caller() as client:
            yield Visitor(self.stack, client)


@pytest.fixture(scope="module")
def production(make_stack: Callable[[str], Stack]) -> Iterator[Production]:
    """A test stack that runs with production settings instead of test settings."""
    stack = make_stack("production")
    for name in _OF_TESTS:
        del stack.environment[name]
    stack.environment |= _SETTINGS
    stack.start_api()
    with socket.create_connection((LOOPBACK, stack.api_port), timeout=30) as half_said:
        half_said.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
        yield Production(stack, half_said)
    stack.stop()


@pytest.fixture
def production_email(production: Production) -> str:
    """The e-mail address of a new account in the test stack with production settings."""
    return new_account(production.stack)


def test_login_over_tls_sets_only_secure_host_cookies(
    production: Production, production_email: str
) -> None:
    with production.visitor() as person:
        reply = person.log_in(production_email)
        assert person.is_in()
    assert reply.status_code == 303
    cookies = reply.headers.get_list("set-cookie")
    assert any(each.startswith("__Host-pressroom_session=") for each in cookies)
    for each in cookies:
        assert each.startswith("__Host-")
        said = {part.strip().lower() for part in each.split(";")}
        assert said >= {"secure", "httponly", "samesite=lax", "path=/"}
    assert "max-age=" in reply.headers["strict-transport-security"]


def test_production_api_shows_security_contact_and_hides_documentation_and_metrics(
    production: Production,
) -> None:
    with production.caller() as stranger:
        told = stranger.get("/.well-known/security.txt")
        assert told.status_code == 200
        assert f"Contact: {CONTACT}" in told.text
        assert f"Canonical: https://{HOST}/.well-known/security.txt" in told.text
        for path in ("/docs", "/openapi.json"):
            problem(stranger.get(path), 404, "route.not_found")
        problem(stranger.get("/metrics"), 401, "auth.metrics_token")


# The last test of the file: the head began when the stack was ready, so little is left to wait.
def test_production_api_closes_connection_with_unfinished_request_head(
    production: Production,
) -> None:
    assert production.half_said.recv(65536) == b""
