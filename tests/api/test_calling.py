"""The request lane: an API process asks a worker, and nobody works for callers who have left."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from devstack.programs import answers
from tests.probe.asking import TAKEN
from tests.stack import Running, Stack, eventually

MODULE = "tests.probe.asking"


@pytest.fixture(scope="module")
def asking(make_stack: Callable[[str], Stack]) -> Stack:
    stack = make_stack("asking")
    port = stack.api_port
    stack.start("api", "api", str(port), module=MODULE, ready=lambda: answers(port, "/healthz"))
    return stack


@pytest.fixture
def worker(asking: Stack) -> Iterator[Running]:
    mark = asking.home / "asking-io.ready"
    mark.unlink(missing_ok=True)
    environment = {"PRESSROOM_READY_FILE": str(mark), "PRESSROOM_WORKER_GRACE": "1"}
    running = asking.start(
        "worker", "worker", module=MODULE, ready=mark.exists, environment=environment
    )
    yield running
    running.stop()


@pytest.fixture
def caller(asking: Stack) -> Iterator[httpx.Client]:
    asking.resources.redis.flushdb()
    with asking.client(asking.new_owner().key) as client:
        yield client


def taken(stack: Stack) -> int:
    count = stack.resources.redis.get(TAKEN)
    return int(count) if count else 0


def inputs(stack: Stack) -> list[bytes]:
    return list(stack.resources.redis.scan_iter("pressroom:input:*"))


def test_the_answer_is_the_workers(worker: Running, caller: httpx.Client) -> None:
    reply = caller.post("/ask", params={"text": "how are you? ünïcödé"})
    assert (reply.status_code, reply.json()["data"]) == (200, {"echo": "how are you? ünïcödé"})


def test_many_ask_at_once_and_each_hears_its_own_answer(
    worker: Running, caller: httpx.Client
) -> None:
    with ThreadPoolExecutor(20) as pool:
        replies = pool.map(lambda n: caller.post("/ask", params={"text": str(n)}), range(60))
    assert [reply.json()["data"]["echo"] for reply in replies] == [str(n) for n in range(60)]


@pytest.mark.parametrize(
    ("end", "refusal"),
    [
        ("refuse", (503, "probe.busy", "7")),
        ("pass", (503, "service.unavailable", None)),
        ("break", (502, "request.failed", None)),
    ],
)
def test_a_refusal_in_the_worker_is_the_callers(
    worker: Running, caller: httpx.Client, end: str, refusal: tuple[int, str, str | None]
) -> None:
    reply = caller.post("/ask", params={"end": end})
    found = (reply.status_code, reply.json()["code"], reply.headers.get("retry-after"))
    assert found == refusal
    assert "ZeroDivision" not in reply.text


def test_an_answer_that_comes_too_late_is_504(worker: Running, caller: httpx.Client) -> None:
    reply = caller.post("/ask", params={"sleep": 3, "seconds": 0.5})
    assert (reply.status_code, reply.json()["code"]) == (504, "request.too_slow")


def test_nobody_works_for_a_caller_who_has_left(asking: Stack, caller: httpx.Client) -> None:
    # Without a worker yet, so that the question waits while its caller hangs up.
    with pytest.raises(httpx.ReadTimeout):
        caller.post("/ask", timeout=httpx.Timeout(10, read=0.3))
    # Much sooner than it would have expired.
    assert eventually(lambda: not inputs(asking), within=5)
    assert caller.post("/ask", params={"seconds": 0.5}).status_code == 504
    mark = asking.home / "late.ready"
    environment = {"PRESSROOM_READY_FILE": str(mark), "PRESSROOM_WORKER_GRACE": "1"}
    late = asking.start(
        "worker", "worker", module=MODULE, ready=mark.exists, environment=environment
    )
    try:
        assert caller.post("/ask", params={"text": "still there"}).status_code == 200
        assert taken(asking) == 1
    finally:
        late.stop()


def test_nothing_of_a_question_stays_longer_than_its_caller_waits(
    asking: Stack, worker: Running, caller: httpx.Client
) -> None:
    caller.post("/ask", params={"text": "x"})
    redis = asking.resources.redis
    keys = [key for key in redis.scan_iter("pressroom:*") if not key.startswith(b"pressroom.")]
    assert not inputs(asking)
    assert all(0 < int(str(redis.ttl(key))) <= 60 for key in keys)
