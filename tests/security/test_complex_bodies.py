"""JSON bodies of the permitted size that would become as many objects as possible."""

import sys
from collections.abc import Iterator
from operator import itemgetter

import httpx2
import pytest

from api.middleware.body_limits import find_body_limit
from devstack.harness.stack import Stack
from tests.support.http.replies import problem
from tests.support.security.json_places import JSON, ApiUse, Values, json_operations, places
from tests.support.sizes import sized

MEGABYTE = 1024 * 1024
FILLINGS = (b"[[]]", b"{}", b'{"a":1}', b'""', b"1")
# These routes refuse a body before they parse it, because it lacks a signature.
SIGNED = ("POST /webhooks/stripe", "POST /senders/{sender_id}/events")


def fill(names: tuple[str, ...], item: bytes, max_bytes: int) -> bytes:
    """Return a body of at most ``max_bytes`` in which the field consists of equal items."""
    head = b"".join(b'{"%b":' % name.encode() for name in names) + b"["
    tail = b"]" + b"}" * len(names)
    count = (max_bytes - len(head) - len(tail)) // (len(item) + 1)
    return head + b",".join([item] * count) + tail


def hostile_bodies() -> Iterator[tuple[str, bytes, bytes]]:
    """Yield operations, each with an item and a body that is full of the item.

    In `make test`, each operation gets one body. Only one operation with the same limits gets two.
    """
    lists = {each.operation: each.names for each in places() if each.is_list and each.names}
    seen = set()
    for number, (operation, _) in enumerate(json_operations()):
        limit = find_body_limit(operation.split()[1])
        start = number % len(FILLINGS)
        count = len(FILLINGS) if sized(1, 1, few=0) else 1 if limit.path in seen else 2
        seen.add(limit.path)
        for item in (FILLINGS * 2)[start : start + count]:
            for names in (lists.get(operation), ("x",))[: sized(2, 2, few=1)]:
                yield operation, item, fill(names or ("x",), item, limit.max_bytes)


@pytest.mark.tier("fast", "properties")
def test_complex_bodies_are_refused_with_little_time_and_memory(
    stack: Stack, client: httpx2.Client, list_id: int, capsys: pytest.CaptureFixture[str]
) -> None:
    values = Values(list_id=list_id, part="thanks", hash_id="a" * 12, user_id=1)
    # The first call of this route imports a library.
    client.post("/webhooks/stripe", content=b"{}", headers=JSON)
    use = ApiUse(stack)
    figures = []
    for operation, item, body in hostile_bodies():
        method, path = operation.split()
        use.restart()
        reply = client.request(method, path.format_map(values), content=body, headers=JSON)
        megabytes = len(body) / MEGABYTE
        what = f"{operation} {item.decode()}"
        figures.append((use.cpu_seconds, use.added_bytes, megabytes, what))
        is_complex = find_body_limit(path).json_limits.are_exceeded_by(body)
        if is_complex and operation not in SIGNED:
            problem(reply, 413, "body.too_complex")
        assert reply.is_client_error or reply.is_success, what
    slowest = max(figures, key=itemgetter(0))
    largest = max(figures, key=itemgetter(1))
    with capsys.disabled():
        sys.stdout.write(
            f"\n{len(figures)} complex bodies: at most {slowest[0]:.2f} s of CPU ({slowest[3]}) "
            f"and {largest[1] // MEGABYTE} MB ({largest[3]})\n"
        )
    for cpu_seconds, added_bytes, megabytes, what in figures:
        # The target for a body of 2 MB is 50 ms. Reading a body needs twice its memory.
        assert cpu_seconds < 0.1 + 0.05 * megabytes, what
        assert added_bytes < (50 + 2 * megabytes) * MEGABYTE, what
