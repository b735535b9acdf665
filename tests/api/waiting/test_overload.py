"""Tests that an overloaded API serves some callers, and rejects the others immediately."""

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from devstack.supervisor.programs import is_responding

pytestmark = pytest.mark.tier("timing")
MODULE = "tests.support.probe.asking"
WORK_SECONDS = 0.5
LOAD_SECONDS = 5
# The number of API calls that can be answered in LOAD_SECONDS. The worker answers two calls at a
# time, and each call takes WORK_SECONDS.
CALLS_SERVED_IN_TIME = 20


@pytest.fixture(scope="module")
def busy_stack(make_stack: Callable[[str], Stack]) -> Stack:
    """A test stack with a test route `/ask` and one worker, which answers two calls at a time."""
    stack = make_stack("overload")
    port = stack.api_port
    environment = {"PROBE_MAX_LINE_SECONDS": "1"}
    stack.start(
        "api",
        "api",
        str(port),
        module=MODULE,
        ready=lambda: is_responding(port, "/healthz"),
        environment=environment,
        forks=True,
    )
    ready_path = stack.home / "overload.ready"
    worker_environment = {"PRESSROOM_READY_FILE": str(ready_path)}
    stack.start(
        "worker",
        "worker",
        module=MODULE,
        ready=ready_path.exists,
        environment=worker_environment,
        forks=True,
    )
    return stack


def test_overloaded_api_serves_accepted_calls_and_rejects_the_rest_with_retry_after(
    busy_stack: Stack,
) -> None:
    keys = [busy_stack.create_owner().key for _ in range(3)]

    def ask(number: int) -> httpx2.Response:
        time.sleep(number * LOAD_SECONDS / (5 * CALLS_SERVED_IN_TIME))
        with busy_stack.client(keys[number % len(keys)]) as client:
            return client.post("/ask", params={"sleep": WORK_SECONDS, "text": str(number)})

    with ThreadPoolExecutor(5 * CALLS_SERVED_IN_TIME) as pool:
        replies = list(pool.map(ask, range(5 * CALLS_SERVED_IN_TIME)))
    statuses = Counter(reply.status_code for reply in replies)
    assert set(statuses) == {200, 503}
    assert statuses[200] >= CALLS_SERVED_IN_TIME / 2
    for reply in replies:
        if reply.status_code == 503:
            assert reply.json()["code"] == "queue.overloaded"
            assert 1 <= int(reply.headers["Retry-After"]) <= 30

    def is_served() -> bool:
        with busy_stack.client(keys[0]) as client:
            return client.post("/ask").status_code == 200

    eventually(is_served, what="the recovery")
