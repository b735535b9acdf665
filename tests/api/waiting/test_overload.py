"""More callers than the workers can serve: some are served, and the rest are refused at once."""

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
# Of two workers, in as many seconds.
SECONDS = 5
CAPACITY = 20


@pytest.fixture(scope="module")
def busy_stack(make_stack: Callable[[str], Stack]) -> Stack:
    """A test stack with a test route `/ask` and one worker, which answers two calls at a time."""
    stack = make_stack("overload")
    port = stack.api_port
    impatient = {"PROBE_MAX_LINE_SECONDS": "1"}
    stack.start(
        "api",
        "api",
        str(port),
        module=MODULE,
        ready=lambda: is_responding(port, "/healthz"),
        environment=impatient,
        forks=True,
    )
    mark = stack.home / "overload.ready"
    ready_file = {"PRESSROOM_READY_FILE": str(mark)}
    stack.start(
        "worker", "worker", module=MODULE, ready=mark.exists, environment=ready_file, forks=True
    )
    return stack


def test_overloaded_api_serves_accepted_calls_and_rejects_the_rest_with_retry_after(
    busy_stack: Stack,
) -> None:
    keys = [busy_stack.create_owner().key for _ in range(3)]

    def ask(number: int) -> httpx2.Response:
        time.sleep(number * SECONDS / (5 * CAPACITY))
        with busy_stack.client(keys[number % len(keys)]) as client:
            return client.post("/ask", params={"sleep": WORK_SECONDS, "text": str(number)})

    with ThreadPoolExecutor(5 * CAPACITY) as pool:
        replies = list(pool.map(ask, range(5 * CAPACITY)))
    statuses = Counter(reply.status_code for reply in replies)
    assert set(statuses) == {200, 503}
    assert statuses[200] >= CAPACITY / 2
    for reply in replies:
        if reply.status_code == 503:
            assert reply.json()["code"] == "queue.overloaded"
            assert 1 <= int(reply.headers["Retry-After"]) <= 30

    def is_served() -> bool:
        with busy_stack.client(keys[0]) as client:
            return client.post("/ask").status_code == 200

    eventually(is_served, what="the recovery")
