"""Tests the example configuration of HAProxy in front of two API hosts."""

import http.client
import json
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from functools import partial
from pathlib import Path

import httpx2
import pytest

from api.middleware.layers import MAX_PATH_BYTES
from core.settings import Settings
from devstack import LOOPBACK
from devstack.harness.free_ports import free_port
from devstack.harness.running import Running
from devstack.harness.stack import Owner, Stack, plain_client
from services.credits import ledger
from tests.support.stack import haproxy
from tests.support.stack.haproxy import (
    SERVERS,
    RunningHaproxy,
    running_haproxy,
    write_configuration,
)
from tests.support.stack.load import Caller, Load, charge

pytestmark = pytest.mark.tier("machines")

# The settings of an API behind a proxy. In other tests, an API process stops without draining,
# because this is faster.
DRAINING_SETTINGS = {
    "PRESSROOM_API_DRAIN": str(Settings.model_fields["api_drain"].default),
    "PRESSROOM_TRUSTED_PROXIES": LOOPBACK,
}
# An address of this machine that differs from the proxy's address.
CALLER_ADDRESS = "127.0.0.9"


@pytest.fixture(scope="module")
def api_hosts(stack: Stack) -> Iterator[dict[int, Running]]:
    haproxy.find_haproxy()
    ports = free_port(), free_port()
    running = {port: stack.start_api(port, PRESSROOM_TRUSTED_PROXIES=LOOPBACK) for port in ports}
    yield running
    for each in running.values():
        each.stop()


@pytest.fixture(scope="module")
def haproxy_front(stack: Stack, api_hosts: dict[int, Running]) -> Iterator[RunningHaproxy]:
    first_host, second_host = (f"{LOOPBACK}:{port}" for port in api_hosts)
    with running_haproxy(stack, f"{LOOPBACK}:{free_port()}", (first_host, second_host)) as running:
        yield running


@pytest.fixture
def client_through_haproxy(haproxy_front: RunningHaproxy, owner: Owner) -> Iterator[httpx2.Client]:
    transport = httpx2.HTTPTransport(local_address=CALLER_ADDRESS, verify=False)
    headers = {"Authorization": f"Bearer {owner.key}"}
    with plain_client(base_url=haproxy_front.url, headers=headers, transport=transport) as client:
        yield client


@pytest.mark.tier("check")
def test_haproxy_accepts_its_configuration_without_warnings(tmp_path: Path) -> None:
    file = write_configuration(
        tmp_path, f"{LOOPBACK}:{free_port()}", ("127.0.0.1:1", "127.0.0.1:2")
    )
    completed = subprocess.run(
        [haproxy.find_haproxy(), "-c", "-f", str(file)], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    assert "WARNING" not in completed.stderr


def test_api_behind_haproxy_sees_the_real_client_address(
    stack: Stack, owner: Owner, client_through_haproxy: httpx2.Client
) -> None:
    forged_headers = {"X-Forwarded-For": "192.0.2.7", "Forwarded": "for=192.0.2.8"}
    assert client_through_haproxy.post(
        "/apikeys", json={"name": "made"}, headers=forged_headers
    ).is_success
    query = "SELECT ip FROM events WHERE user_id = %s AND ip IS NOT NULL"
    assert stack.query(query, owner.user_id) == [(CALLER_ADDRESS,)]


def test_job_events_pass_haproxy_while_the_stream_is_open(
    stack: Stack, owner: Owner, client_through_haproxy: httpx2.Client
) -> None:
    # No process runs a job of an unknown kind, so the job stays queued.
    insert_job = """
        INSERT INTO jobs (kind, queue, user_id, run_at, send_after)
        VALUES ('unknown.kind', 'maintenance', %s, now() + interval '1 h', now() + interval '1 h')
        RETURNING id
    """
    [(job_id,)] = stack.query(insert_job, owner.user_id)
    with client_through_haproxy.stream("GET", f"/jobs/{job_id}/events") as stream:
        assert stream.status_code == 200
        lines = stream.iter_lines()
        data = next(line for line in lines if line.startswith("data:"))
        assert json.loads(data.removeprefix("data:"))["id"] == job_id
    stack.query("DELETE FROM jobs WHERE id = %s", job_id)


@pytest.mark.parametrize("path", ["/readyz", "/readyz/", "/%72eadyz", "/metrics", "/metrics/"])
def test_haproxy_hides_operator_paths_from_callers(
    client_through_haproxy: httpx2.Client, path: str
) -> None:
    assert client_through_haproxy.get(path).status_code == 404
    assert client_through_haproxy.get("/healthz").status_code == 200


def test_haproxy_rejects_too_long_paths(
    client_through_haproxy: httpx2.Client,
) -> None:
    for length, status in ((MAX_PATH_BYTES, 404), (MAX_PATH_BYTES + 1, 414)):
        reply = client_through_haproxy.get("/" + "a" * (length - 1))
        assert reply.status_code == status
        assert ("x-request-id" in reply.headers) == (status == 404)


def test_haproxy_rejects_bodies_that_are_too_large_for_any_call(
    haproxy_front: RunningHaproxy,
) -> None:
    assert _post_large_body(haproxy_front, "/lists") == (413, None)


@pytest.mark.parametrize(
    "path", ["/lists/1/imports", "/lists/the-daily/imports", "/lists/1/imports/"]
)
def test_haproxy_forwards_large_import_files_for_every_form_of_list_path(
    haproxy_front: RunningHaproxy, path: str
) -> None:
    status, request_id = _post_large_body(haproxy_front, path)
    assert status == 401
    assert request_id is not None


def _post_large_body(haproxy_front: RunningHaproxy, path: str) -> tuple[int, str | None]:
    """Send the headers of a POST request with a large body, but without credentials.

    Return the status of the response and the API's request id. The request id is None if HAProxy
    rejected the request itself.
    """
    address = haproxy_front.url.removeprefix("https://")
    context = ssl._create_unverified_context()
    with closing(http.client.HTTPSConnection(address, timeout=20, context=context)) as caller:
        # Send only the headers, and nothing of the body.
        caller.request("POST", path, headers={"Content-Length": "50000000"})
        reply = caller.getresponse()
        return reply.status, reply.getheader("X-Request-ID")


def test_repeatable_calls_through_haproxy_succeed_while_api_hosts_are_killed(
    stack: Stack, owner: Owner, haproxy_front: RunningHaproxy, api_hosts: dict[int, Running]
) -> None:
    ledger.grant_credits(
        stack.resources.database, owner.account_id, Decimal(1_000_000), source_id="start"
    )
    load = Load(haproxy_front.url)

    def read_lists(caller: Caller) -> None:
        caller.call("GET", "/lists", keyed=False)

    with load.running(*[(owner.key, charge)] * 3, (owner.key, read_lists)):
        load.require_more(50)
        for server, port in zip(SERVERS, api_hosts, strict=True):
            api_hosts[port].kill()
            load.require_more(50)
            api_hosts[port] = stack.start_api(port, PRESSROOM_TRUSTED_PROXIES=LOOPBACK)
            haproxy_front.await_up(server)
            load.require_more(50)
    assert load.retried == []
    entries = "SELECT count(*) FROM credit_entries WHERE user_id = %s AND source_id = 'load'"
    assert stack.query(entries, owner.user_id) == [(load.done,)]


@pytest.mark.tier("machines")
def test_calls_through_haproxy_succeed_during_rolling_restart_of_api_hosts(
    stack: Stack, owner: Owner, haproxy_front: RunningHaproxy, api_hosts: dict[int, Running]
) -> None:
    ledger.grant_credits(
        stack.resources.database, owner.account_id, Decimal(1_000_000), source_id="start"
    )
    load = Load(haproxy_front.url)
    # Charge without an Idempotency-Key. The proxy must not repeat a call without this header.
    action = partial(charge, keyed=False)
    for server, port in zip(SERVERS, api_hosts, strict=True):
        api_hosts[port].stop()
        api_hosts[port] = stack.start_api(port, **DRAINING_SETTINGS)
        haproxy_front.await_up(server)
    with load.running(*[(owner.key, action)] * 3):
        load.require_more(50)
        for server, port in zip(SERVERS, api_hosts, strict=True):
            assert api_hosts[port].stop() == 0
            api_hosts[port] = stack.start_api(port, **DRAINING_SETTINGS)
            haproxy_front.await_up(server)
            load.require_more(50)
    assert load.retried == []
