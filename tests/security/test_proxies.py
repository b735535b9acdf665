"""Tests which proxies the API trusts to report the caller's IP address."""

from collections.abc import Iterator

import pytest

from devstack import LOOPBACK
from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.harness.running import Running
from devstack.harness.stack import Stack, plain_client
from devstack.supervisor.programs import is_responding

WARNING = "proxy.not_trusted"


@pytest.fixture
def api_port() -> int:
    """A free TCP port, on which a test starts an API process."""
    return free_port()


def test_api_with_https_url_does_not_start_without_trusted_proxies(
    stack: Stack, api_port: int
) -> None:
    api = stack.start(
        "silent-api",
        *("serve", "--port", str(api_port)),
        environment={"PRESSROOM_PUBLIC_URL": "https://api.example.com"},
    )
    assert api.process.wait(30) == 2
    log = api.log.read_text()
    assert "PRESSROOM_TRUSTED_PROXIES: is required because the public URL uses https" in log
    assert "Traceback" not in log


@pytest.fixture
def api_without_proxies(stack: Stack, api_port: int) -> Iterator[Running]:
    """An API process whose settings name no trusted proxies."""
    running = stack.start(
        # A unique name gives the process a log file that no other API process writes to.
        "api-of-no-proxy",
        *("serve", "--port", str(api_port)),
        ready=lambda: is_responding(api_port, "/healthz"),
        port=api_port,
        environment={"PRESSROOM_TRUSTED_PROXIES": "none"},
    )
    yield running
    running.stop()
    stack.processes.remove(running)


def test_untrusted_proxy_is_logged_only_once_and_its_header_is_ignored(
    api_port: int, api_without_proxies: Running
) -> None:
    with plain_client(base_url=f"http://{LOOPBACK}:{api_port}") as client:
        client.get("/healthz")
        assert WARNING not in api_without_proxies.log.read_text()
        for number in range(5):
            client.get("/lists", headers={"X-Forwarded-For": f"192.0.2.{number}"})
    eventually(lambda: WARNING in api_without_proxies.log.read_text(), what="the line in the log")
    log = api_without_proxies.log.read_text()
    assert log.count(WARNING) == 1
    assert "192.0.2." not in log
