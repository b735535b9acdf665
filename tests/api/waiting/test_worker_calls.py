"""The request queue: an API process asks a worker, and nobody works for callers who have left."""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.parse import urlencode

import httpx2
import pytest

from core.queues import Queue
from devstack import LOOPBACK
from devstack.harness.polling import eventually
from devstack.harness.running import Running
from devstack.harness.stack import Stack
from devstack.supervisor.programs import is_responding
from storage.redis import request_scripts
from tests.support.probe.asking import STEPS, TAKEN

MODULE = "tests.support.probe.asking"
# For the wait of a caller: longer than a worker takes to start on a busy machine.
PATIENCE_SECONDS = 100
Params = dict[str, str | int | float | bool | None]


@pytest.fixture(scope="module")
def probe_stack(make_stack: Callable[[str], Stack]) -> Stack:
    """A test stack with a test route `/ask`, but without the worker that answers its calls."""
    stack = make_stack("asking")
    port = stack.api_port
    stack.start(
        "api",
        "api",
        str(port),
        module=MODULE,
        ready=lambda: is_responding(port, "/healthz"),
        forks=True,
    )
    return stack


class Shift:
    """The worker that tests share; each starts one only if there is none."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._worker: Running | None = None

    def begin(self) -> Running:
        if self._worker is None or self._worker.process.poll() is not None:
            mark = self._stack.home / f"asking-{time.monotonic_ns()}.ready"
            self._worker = self._stack.start(
                "worker",
                "worker",
                module=MODULE,
                ready=mark.exists,
                environment={"PRESSROOM_READY_FILE": str(mark), "PRESSROOM_WORKER_GRACE": "1"},
                forks=True,
            )
        return self._worker

    def end(self) -> None:
        if self._worker is not None:
            self._worker.stop()


@pytest.fixture(scope="module")
def shared_worker(probe_stack: Stack) -> Shift:
    return Shift(probe_stack)


@pytest.fixture
def worker(shared_worker: Shift) -> Running:
    return shared_worker.begin()


@pytest.fixture
def probe_client(probe_stack: Stack) -> Iterator[httpx2.Client]:
    """An HTTP client with the API key of a new owner. Redis is empty when the test starts."""
    probe_stack.resources.redis.flushdb()
    with probe_stack.client(probe_stack.create_owner().key) as client:
        client.timeout = httpx2.Timeout(PATIENCE_SECONDS + 20)
        yield client


def taken(stack: Stack, what: str = TAKEN) -> int:
    count = stack.resources.redis.get(what)
    return int(count) if count else 0


def inputs(stack: Stack) -> list[bytes]:
    return list(stack.resources.redis.scan_iter("pressroom:input:*"))


def test_concurrent_callers_each_receive_their_own_answer(
    worker: Running, probe_client: httpx2.Client
) -> None:
    with ThreadPoolExecutor(20) as pool:
        replies = pool.map(lambda n: probe_client.post("/ask", params={"text": str(n)}), range(60))
    assert [reply.json()["data"]["echo"] for reply in replies] == [str(n) for n in range(60)]


@pytest.mark.parametrize(
    ("end", "error"),
    [
        ("refuse", (503, "probe.busy", "7")),
        ("pass", (503, "service.unavailable", None)),
        ("break", (502, "request.failed", None)),
    ],
)
def test_error_in_the_worker_is_returned_to_the_caller_without_internals(
    worker: Running, probe_client: httpx2.Client, end: str, error: tuple[int, str, str | None]
) -> None:
    reply = probe_client.post("/ask", params={"end": end})
    found = (reply.status_code, reply.json()["code"], reply.headers.get("retry-after"))
    assert found == error
    assert "ZeroDivision" not in reply.text


def test_worker_answer_after_the_time_limit_becomes_504(
    worker: Running, probe_client: httpx2.Client
) -> None:
    reply = probe_client.post("/ask", params={"sleep": 3, "seconds": 0.5})
    assert (reply.status_code, reply.json()["code"]) == (504, "request.too_slow")


def test_worker_skips_request_whose_caller_disconnected(
    probe_stack: Stack, shared_worker: Shift, probe_client: httpx2.Client
) -> None:
    # Without a worker yet, so that the question waits while its caller hangs up.
    shared_worker.end()
    with pytest.raises(httpx2.ReadTimeout):
        probe_client.post("/ask", params={"seconds": 600}, timeout=httpx2.Timeout(10, read=0.3))
    # Much sooner than it would have expired.
    assert eventually(lambda: not inputs(probe_stack), what="the end")
    assert probe_client.post("/ask", params={"seconds": 0.5}).status_code == 504
    shared_worker.begin()
    assert probe_client.post("/ask", params={"text": "still there"}).status_code == 200
    assert taken(probe_stack) == 1


def test_request_is_withdrawn_if_its_caller_disconnects_while_enqueueing(
    probe_stack: Stack, shared_worker: Shift, probe_client: httpx2.Client
) -> None:
    shared_worker.end()

    def ask(number: int) -> None:
        with contextlib.suppress(httpx2.ReadTimeout):
            read = 0.02 + 0.005 * (number % 30)
            probe_client.post(
                "/ask", params={"seconds": 600}, timeout=httpx2.Timeout(10, read=read)
            )

    # More at once than the API has threads, so that some leave while they wait for one.
    with ThreadPoolExecutor(80) as pool:
        list(pool.map(ask, range(240)))
    redis = probe_stack.resources.redis
    # Much sooner than their patience would have ended.
    eventually(lambda: not list(redis.scan_iter("pressroom:*:*")), what="the end")


def assert_nothing_stays(probe_stack: Stack) -> None:
    # The API clears up when it has answered: the caller need not wait for that.
    # Canaries come and go by themselves.
    redis = probe_stack.resources.redis
    canaries = {b"pressroom:canaries"}
    eventually(lambda: set(redis.scan_iter("pressroom:*")) <= canaries, what="no keys")


SAME = {"same": "one-question", "text": "shared"}
KEYS = request_scripts.build_keys(request_scripts.build_request_id(Queue.REQUEST, SAME["same"]))
WAITING = KEYS[0]
RUNNING = KEYS[2]


def asked_at_once(
    probe_client: httpx2.Client, callers: int, **params: str | float
) -> list[httpx2.Response]:
    with ThreadPoolExecutor(callers) as pool:
        asked = [
            pool.submit(probe_client.post, "/ask", params={**SAME, **params})
            for _ in range(callers)
        ]
        return [each.result() for each in asked]


@contextmanager
def under_way(stack: Stack, probe_client: httpx2.Client, **params: str | float) -> Iterator[None]:
    """Ask on a connection that is closed at the block's end; a worker has begun before the block.

    Without a timeout: the test says when the caller hangs up, however slow the machine is.
    """
    request = probe_client.build_request("POST", f"/ask?{urlencode({**SAME, **params})}")
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    with socket.create_connection((LOOPBACK, stack.api_port)) as connection:
        target = request.url.raw_path.decode()
        connection.sendall(f"POST {target} HTTP/1.1\r\n{head}\r\n".encode())
        eventually(lambda: taken(stack), what="the run")
        yield


def test_equal_concurrent_requests_share_one_run(
    probe_stack: Stack, worker: Running, probe_client: httpx2.Client
) -> None:
    replies = asked_at_once(probe_client, 12, sleep=1)
    assert [reply.json()["data"] for reply in replies] == [{"echo": "shared"}] * 12
    assert taken(probe_stack) == 1
    assert_nothing_stays(probe_stack)


def test_equal_concurrent_requests_share_an_error_and_the_next_request_runs_anew(
    probe_stack: Stack, worker: Running, probe_client: httpx2.Client
) -> None:
    replies = asked_at_once(probe_client, 5, sleep=1, end="refuse")
    assert {reply.status_code for reply in replies} == {503}
    assert taken(probe_stack) == 1
    assert probe_client.post("/ask", params=SAME).status_code == 200
    assert taken(probe_stack) == 2


def test_shared_run_continues_for_second_caller_after_first_disconnects(
    probe_stack: Stack, worker: Running, probe_client: httpx2.Client
) -> None:
    redis = probe_stack.resources.redis
    with ThreadPoolExecutor(1) as pool:
        with under_way(probe_stack, probe_client, sleep=0.5, steps=4):
            second = pool.submit(
                probe_client.post, "/ask", params={**SAME, "sleep": 0.5, "steps": 4}
            )
            eventually(lambda: redis.zcard(WAITING) == 2, what="the second caller")
        assert second.result().json()["data"] == {"echo": "shared"}
    assert (taken(probe_stack), taken(probe_stack, STEPS)) == (1, 4)


def test_shared_run_stops_at_its_next_step_after_last_caller_disconnects(
    probe_stack: Stack, worker: Running, probe_client: httpx2.Client
) -> None:
    redis = probe_stack.resources.redis
    # Far more steps, and far more patience, than this test waits for.
    with under_way(probe_stack, probe_client, sleep=0.1, steps=10_000, seconds=600):
        assert redis.exists(RUNNING)
    eventually(lambda: not redis.exists(WAITING), what="no caller")
    steps = taken(probe_stack, STEPS)
    eventually(lambda: not redis.exists(RUNNING), what="the end of the run")
    # The step that had begun when the caller left.
    assert taken(probe_stack, STEPS) <= steps + 1
    # Who asks now is not kept waiting by what was given up.
    assert probe_client.post("/ask", params=SAME).status_code == 200


@pytest.mark.tier("faults")
def test_lease_of_killed_worker_expires_so_that_the_next_worker_answers(
    probe_stack: Stack, shared_worker: Shift, worker: Running, probe_client: httpx2.Client
) -> None:
    with ThreadPoolExecutor(1) as pool:
        # Another worker may do either of the two first, so neither takes long.
        params: Params = {**SAME, "sleep": 1, "steps": 3, "seconds": PATIENCE_SECONDS}
        lost = pool.submit(probe_client.post, "/ask", params=params)
        eventually(lambda: taken(probe_stack), what="the run")
        worker.kill()
        redis = probe_stack.resources.redis
        assert redis.exists(RUNNING)
        shared_worker.begin()
        eventually(lambda: not redis.exists(RUNNING), what="the end of its lease")
        assert probe_client.post("/ask", params=SAME).status_code == 200
        # It still waits, so it is answered too.
        assert lost.result().status_code == 200


def test_request_returned_by_stopping_worker_is_run_by_the_next_worker(
    probe_stack: Stack, shared_worker: Shift, worker: Running, probe_client: httpx2.Client
) -> None:
    with ThreadPoolExecutor(1) as pool:
        # Too long for the grace of the first worker.
        params: Params = {"text": "on", "sleep": 3, "seconds": PATIENCE_SECONDS}
        waiting = pool.submit(probe_client.post, "/ask", params=params)
        eventually(lambda: taken(probe_stack), what="the run")
        worker.terminate()
        worker.process.wait(20)
        # No lease stands in the way of the next worker.
        assert not list(probe_stack.resources.redis.scan_iter("pressroom:running:*"))
        assert inputs(probe_stack)
        shared_worker.begin()
        assert waiting.result().json()["data"] == {"echo": "on"}
    assert taken(probe_stack) == 2


def test_request_lost_by_redis_is_enqueued_again_and_answered(
    probe_stack: Stack, worker: Running, probe_client: httpx2.Client
) -> None:
    os.kill(worker.pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(probe_client.post, "/ask", params={"text": "lost", "seconds": 40})
            eventually(lambda: inputs(probe_stack), what="the call")
            probe_stack.resources.redis.flushdb()
            os.kill(worker.pid, signal.SIGCONT)
            assert waiting.result().json()["data"] == {"echo": "lost"}
    finally:
        os.kill(worker.pid, signal.SIGCONT)


def test_timeout_of_one_caller_does_not_affect_others_sharing_the_run(
    probe_stack: Stack, worker: Running, probe_client: httpx2.Client
) -> None:
    with ThreadPoolExecutor(2) as pool:
        patient = pool.submit(probe_client.post, "/ask", params={**SAME, "sleep": 1.5})
        eventually(lambda: taken(probe_stack), what="the run")
        hasty = pool.submit(probe_client.post, "/ask", params={**SAME, "seconds": 0.2})
        assert hasty.result().status_code == 504
        assert patient.result().status_code == 200


def test_large_worker_answer_reaches_its_caller_completely(
    worker: Running, probe_client: httpx2.Client
) -> None:
    text = "long answer " * 2_000
    assert probe_client.post("/ask", params={"text": text}).json()["data"] == {"echo": text}
