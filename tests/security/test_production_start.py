"""Tests the protection of an API with production settings instead of test settings.

The other security tests cover the attacks that don't depend on settings.
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
# Test stacks have these settings, which raise limits and allow redirects. The stack of this module
# runs without these settings, like a stack in production.
_TEST_SETTINGS = (*RATE_LIMIT_SETTINGS, "PRESSROOM_QUOTA_PAID", "PRESSROOM_REDIRECT_ORIGINS")
_SETTINGS = {
    "PRESSROOM_PUBLIC_URL": f"https://{HOST}",
    "PRESSROOM_TRUSTED_PROXIES": LOOPBACK,
    "PRESSROOM_API_DOCS": "false",
    "PRESSROOM_SECURITY_CONTACTS": CONTACT,
}


class TlsProxy(httpx2.BaseTransport):
    """Forwards HTTPS requests of a browser to the API, with the browser's IP address."""

    def __init__(self, port: int, address: str) -> None:
        self._port = port
        self._address = address
        self._upstream = httpx2.HTTPTransport(verify=False)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        assert (request.url.scheme, request.url.host) == ("https", HOST)
        # Copy the browser's request instead of changing its URL. If the URL of the browser's
        # request changed, httpx would store the response's cookies for the wrong URL. The copied
        # request keeps the header ``Host``, which contains the public host name.
        forwarded_request = httpx2.Request(
            request.method,
            request.url.copy_with(scheme="http", host=LOOPBACK, port=self._port),
            headers=request.headers,
            stream=request.stream,
            extensions=request.extensions,
        )
        forwarded_request.headers["X-Forwarded-For"] = self._address
        forwarded_request.headers["X-Forwarded-Proto"] = "https"
        return self._upstream.handle_request(forwarded_request)

    def close(self) -> None:
        self._upstream.close()


@dataclass(frozen=True)
class Production:
    stack: Stack
    # A connection that was opened when the stack was ready, and over which the client has sent only
    # half of a request head.
    stalled_connection: socket.socket

    @contextlib.contextmanager
    def caller(self) -> Iterator[httpx2.Client]:
        """Open an HTTP client with an IP address of its own."""
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
    for name in _TEST_SETTINGS:
        del stack.environment[name]
    stack.environment |= _SETTINGS
    stack.start_api()
    with socket.create_connection((LOOPBACK, stack.api_port), timeout=30) as stalled_connection:
        stalled_connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
        yield Production(stack, stalled_connection)
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
        assert person.is_logged_in()
    assert reply.status_code == 303
    cookies = reply.headers.get_list("set-cookie")
    assert any(each.startswith("__Host-pressroom_session=") for each in cookies)
    for each in cookies:
        assert each.startswith("__Host-")
        attributes = {part.strip().lower() for part in each.split(";")}
        assert attributes >= {"secure", "httponly", "samesite=lax", "path=/"}
    assert "max-age=" in reply.headers["strict-transport-security"]


def test_production_api_shows_security_contact_and_hides_documentation_and_metrics(
    production: Production,
) -> None:
    with production.caller() as stranger:
        security_txt = stranger.get("/.well-known/security.txt")
        assert security_txt.status_code == 200
        assert f"Contact: {CONTACT}" in security_txt.text
        assert f"Canonical: https://{HOST}/.well-known/security.txt" in security_txt.text
        for path in ("/docs", "/openapi.json"):
            problem(stranger.get(path), 404, "route.not_found")
        problem(stranger.get("/metrics"), 401, "auth.metrics_token")


# This test comes last in the module, so that most of the stalled connection's timeout passes while
# the module's other tests run.
def test_production_api_closes_connection_with_unfinished_request_head(
    production: Production,
) -> None:
    assert production.stalled_connection.recv(65536) == b""
