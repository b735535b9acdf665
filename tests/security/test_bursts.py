"""Tests that a burst of calls of one account leaves other callers their share of an API process."""

import asyncio
import json
import resource
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from api.limits.places import MIN_PLACES_PER_ACCOUNT
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from tests.support.credits.charging import CreditAccounts
from tests.support.images.pictures import photo
from tests.support.lists.subscribers import insert_members, new_list, trace_for
from tests.support.sizes import sized
from tests.support.stack.frozen_processes import frozen

_OPEN_AT_ONCE = 200


@dataclass(frozen=True)
class BurstReply:
    """A response to a request of a burst. The names of the headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed


def build_request(operation: str, *headers: str, body: bytes = b"") -> bytes:
    """Build a request. ``operation``: the method and the path."""
    lines = [f"{operation} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def send_at_once(stack: Stack, requests: Sequence[bytes]) -> list[BurstReply]:
    """Open a connection for each request, send all requests, and return their responses.

    The API process is paused while the requests are sent, so that it reads them at the same time on
    any machine. No request is repeated.
    """
    [api_pid] = [running.pid for running in stack.processes if running.name == "api"]
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    try:
        return asyncio.run(_send_at_once(api_pid, stack.api_port, requests))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft_limit, hard_limit))


async def _send_at_once(api_pid: int, port: int, requests: Sequence[bytes]) -> list[BurstReply]:
    connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    for start in range(0, len(requests), _OPEN_AT_ONCE):
        count = len(requests[start : start + _OPEN_AT_ONCE])
        connections += await asyncio.gather(*(_open_connection(port) for _ in range(count)))
    try:
        with frozen(api_pid):
            for (_, writer), request in zip(connections, requests, strict=True):
                writer.write(request)
        return await asyncio.gather(*(_read_reply(reader) for reader, _ in connections))
    finally:
        for _, writer in connections:
            writer.close()


async def _open_connection(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection after the API has accepted the connection and answered a request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(build_request("GET /healthz"))
    await _read_reply(reader)
    return reader, writer


async def _read_reply(reader: asyncio.StreamReader) -> BurstReply:
    first_line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip().split("\r\n")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return BurstReply(int(first_line.split()[1]), headers, body)


# An account has 100 places, and all senders together have as many.
CHARGE_COUNT = sized(MIN_PLACES_PER_ACCOUNT + 200, 900)
NEIGHBOUR_COUNT = 10
OPT_OUT_COUNT = sized(300, 900)
REPORT_COUNT = 300
# Two groups of this size need more places than an account has. No worker runs, so the calls wait.
UPLOAD_COUNT = MIN_PLACES_PER_ACCOUNT * 3 // 5
WAIT_SECONDS = 10


@pytest.fixture(scope="module")
def small_stack(empty_stack: Stack) -> Stack:
    """A stack with one API process, in which few requests may be in progress."""
    empty_stack.start_api(None, module="tests.support.probe.small_api")
    return empty_stack


def require_retry_after(replies: list[BurstReply]) -> None:
    """Check that all responses are 200, or a refusal that says when to try again."""
    assert {reply.status for reply in replies} <= {200, 429, 503}
    for reply in replies:
        if reply.status != 200:
            assert 1 <= int(reply.headers["retry-after"]) <= 60


def build_charge(owner: Owner, source_id: str) -> bytes:
    return build_request(
        "POST /auxilia/credits/consume",
        f"Authorization: Bearer {owner.key}",
        f"Idempotency-Key: burst-of-charges-{source_id}",
        "Content-Type: application/json",
        body=json.dumps({"amount_credit": 1, "source_id": source_id}).encode(),
    )


@pytest.fixture
def charge_burst(small_stack: Stack) -> Iterator[list[bytes]]:
    """Charges of one account, each with its own idempotency key."""
    owner = CreditAccounts(small_stack).create_holder("100000")
    with small_stack.client(owner.key) as client:
        # After a call, the process knows the owner of the key without a query.
        assert client.get("/auxilia/credits/balance").status_code == 200
    yield [build_charge(owner, f"post-{number}") for number in range(CHARGE_COUNT)]
    accounts = CreditAccounts(small_stack)
    accounts.require_clean_books()


def test_burst_of_charges_is_partly_refused_and_other_accounts_are_served(
    small_stack: Stack, charge_burst: list[bytes]
) -> None:
    neighbour = CreditAccounts(small_stack).create_holder("100")
    neighbour_requests = [
        build_request("GET /lists", f"Authorization: Bearer {neighbour.key}"),
        *(build_charge(neighbour, f"neighbour-{number}") for number in range(NEIGHBOUR_COUNT)),
    ]
    all_replies = send_at_once(small_stack, [*charge_burst, *neighbour_requests])
    replies = all_replies[: len(charge_burst)]
    require_retry_after(replies)
    codes = {reply.json()["code"] for reply in replies if reply.status == 429}
    assert codes == {"requests.too_many_of_yours"}
    assert {reply.status for reply in all_replies[len(charge_burst) :]} == {200}
    # Each charge that was answered with 200 took effect once, and no refused charge took effect.
    [(count, total)] = small_stack.query(
        "SELECT count(*), sum(delta) FROM credit_entries WHERE source_id LIKE 'post-%%'"
    )
    charged = sum(reply.status == 200 for reply in replies)
    assert (count, total) == (charged, Decimal(-charged))
    # The refused charges succeed when they are repeated with the same keys.
    repeated = [
        request for request, reply in zip(charge_burst, replies, strict=True) if reply.status != 200
    ][:50]
    assert {reply.status for reply in send_at_once(small_stack, repeated)} == {200}


def test_opt_outs_of_all_readers_are_accepted_during_a_burst(
    small_stack: Stack, charge_burst: list[bytes]
) -> None:
    """All requests come from one IP address, as from a mail provider."""
    owner = small_stack.create_owner()
    with small_stack.client(owner.key) as client:
        list_id = new_list(client)["id"]
    insert_members(small_stack, list_id, [f"burst-{n}@example.com" for n in range(OPT_OUT_COUNT)])
    rows = small_stack.query("SELECT user_id FROM subscriptions WHERE list_id = %s", list_id)
    opt_outs = [
        build_request(
            f"POST /unsubscribe?trace_id={trace_for(small_stack, list_id, int(str(user_id)))}",
            "Content-Type: application/x-www-form-urlencoded",
            body=b"List-Unsubscribe=One-Click",
        )
        for [user_id] in rows
    ]
    replies = send_at_once(small_stack, [*charge_burst, *opt_outs])
    require_retry_after(replies)
    assert {reply.status for reply in replies[len(charge_burst) :]} == {200}
    kept = "SELECT count(*) FROM opt_outs WHERE list_id = %s AND kind = 'email'"
    assert small_stack.query(kept, list_id) == [(OPT_OUT_COUNT,)]


def test_calls_that_wait_for_a_job_leave_their_places_to_other_calls(small_stack: Stack) -> None:
    owner = small_stack.create_owner()
    upload = build_request(
        "POST /attachments",
        f"Authorization: Bearer {owner.key}",
        "Content-Type: multipart/form-data; boundary=x",
        f"Prefer: wait={WAIT_SECONDS}",
        body=b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.jpg"\r\n\r\n'
        + photo(8, 8)
        + b"\r\n--x--\r\n",
    )
    count = "SELECT count(*) FROM jobs WHERE user_id = %s"
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(send_at_once, small_stack, [upload] * UPLOAD_COUNT)
        eventually(
            lambda: small_stack.query(count, owner.user_id) == [(UPLOAD_COUNT,)],
            what="the first calls wait",
        )
        second = send_at_once(small_stack, [upload] * UPLOAD_COUNT)
        statuses = {reply.status for reply in [*first.result(), *second]}
    assert statuses == {202}


@pytest.mark.parametrize(
    ("headers", "refusal"), [((), 429), (("x-amz-sns-message-type: Notification",), 503)]
)
def test_burst_of_report_posts_is_refused_with_a_status_that_makes_its_provider_retry(
    small_stack: Stack, headers: tuple[str, ...], refusal: int
) -> None:
    posts = [
        build_request(f"POST /senders/{number}/events", *headers, body=b"{}")
        for number in range(REPORT_COUNT)
    ]
    replies = send_at_once(small_stack, posts)
    assert {reply.status for reply in replies} == {401, refusal}
    assert all("retry-after" in reply.headers for reply in replies if reply.status == refusal)
