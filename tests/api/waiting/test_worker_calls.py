"""Tests of the request queue, in which an API process leaves requests for a worker to answer."""

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
from tests.support.probe.asking import STEPS_KEY, TAKEN_KEY

MODULE = "tests.support.probe.asking"
# How long a caller waits for a response. On a busy machine, the start of a worker may take most of
# these 100 seconds.
CALLER_WAIT_SECONDS = 100
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


class SharedWorker:
    """A worker that several tests share. ``start`` starts the worker only if it isn't running."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._worker: Running | None = None

    def start(self) -> Running:
        if self._worker is None or self._worker.process.poll() is not None:
            ready_file = self._stack.home / f"asking-{time.monotonic_ns()}.ready"
            self._worker = self._stack.start(
                "worker",
                "worker",
                module=MODULE,
                ready=ready_file.exists,
                environment={
                    "PRESSROOM_READY_FILE": str(ready_file),
                    "PRESSROOM_WORKER_GRACE": "1",
                },
                forks=True,
            )
        return self._worker

    def stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()


@pytest.fixture(scope="module")
def shared_worker(probe_stack: Stack) -> SharedWorker:
    return SharedWorker(probe_stack)


@pytest.fixture
def worker(shared_worker: SharedWorker) -> Running:
    return shared_worker.start()


@pytest.fixture
def probe_client(probe_stack: Stack) -> Iterator[httpx2.Client]:
    """An HTTP client with the API key of a new owner. Redis is empty when the test starts."""
    probe_stack.resources.redis.flushdb()
    with probe_stack.client(probe_stack.create_owner().key) as client:
        client.timeout = httpx2.Timeout(CALLER_WAIT_SECONDS + 20)
        yield client


def read_counter(stack: Stack, key: str = TAKEN_KEY) -> int:
    count = stack.resources.redis.get(key)
    return int(count) if count else 0


def list_input_keys(stack: Stack) -> list[bytes]:
    return list(stack.resources.redis.scan_iter("pressroom:input:*"))


def test_concurrent_callers_each_receive_their_own_answer(
    worker: Running, probe_client: httpx2.Client
) -> None:
    with ThreadPoolExecutor(20) as pool:
        replies = pool.map(
            lambda number: probe_client.post("/ask", params={"text": str(number)}), range(60)
        )
    assert [reply.json()["data"]["echo"] for reply in replies] == [
        str(number) for number in range(60)
    ]


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
    reply_error = (reply.status_code, reply.json()["code"], reply.headers.get("retry-after"))
    assert reply_error == error
    assert "ZeroDivision" not in reply.text


def test_worker_answer_after_the_time_limit_becomes_504(
    worker: Running, probe_client: httpx2.Client
) -> None:
    reply = probe_client.post("/ask", params={"sleep": 3, "seconds": 0.5})
    assert (reply.status_code, reply.json()["code"]) == (504, "request.too_slow")
    assert "The server is busy" in reply.json()["detail"]


def test_worker_skips_request_whose_caller_disconnected(
    probe_stack: Stack, shared_worker: SharedWorker, probe_client: httpx2.Client
) -> None:
    # Stop the worker, so that the request is still queued when its caller disconnects.
    shared_worker.stop()
    with pytest.raises(httpx2.ReadTimeout):
        probe_client.post("/ask", params={"seconds": 600}, timeout=httpx2.Timeout(10, read=0.3))
    # The API removes the request from Redis soon after the caller has disconnected, long before the
    # request would expire.
    assert eventually(lambda: not list_input_keys(probe_stack), what="the end")
    assert probe_client.post("/ask", params={"seconds": 0.5}).status_code == 504
    shared_worker.start()
    assert probe_client.post("/ask", params={"text": "still there"}).status_code == 200
    assert read_counter(probe_stack) == 1


def test_request_is_withdrawn_if_its_caller_disconnects_while_enqueueing(
    probe_stack: Stack, shared_worker: SharedWorker, probe_client: httpx2.Client
) -> None:
    shared_worker.stop()

    def ask(number: int) -> None:
        with contextlib.suppress(httpx2.ReadTimeout):
            read_timeout_seconds = 0.02 + 0.005 * (number % 30)
            probe_client.post(
                "/ask",
                params={"seconds": 600},
                timeout=httpx2.Timeout(10, read=read_timeout_seconds),
            )

    # There are more callers than threads, so that some callers disconnect while they wait for a
    # thread.
    with ThreadPoolExecutor(80) as pool:
        list(pool.map(ask, range(240)))
    redis = probe_stack.resources.redis
    # The API removes each request from Redis soon after the caller has disconnected, long before
    # the request would expire.
    eventually(lambda: not list(redis.scan_iter("pressroom:*:*")), what="the end")


def require_no_redis_keys(probe_stack: Stack) -> None:
    # The API first responds to a request, and then deletes the request's Redis keys, so wait for
    # the deletion. Ignore the key ``pressroom:canaries``, which workers may write at any time.
    redis = probe_stack.resources.redis
    permanent_keys = {b"pressroom:canaries"}
    eventually(lambda: set(redis.scan_iter("pressroom:*")) <= permanent_keys, what="no keys")


SHARED_REQUEST = {"same": "one-question", "text": "shared"}
REQUEST_KEYS = request_scripts.build_keys(
    request_scripts.build_request_id(Queue.REQUEST, SHARED_REQUEST["same"])
)
CALLERS_KEY = REQUEST_KEYS[0]
RUN_KEY = REQUEST_KEYS[2]


def ask_concurrently(
    probe_client: httpx2.Client, caller_count: int, **params: str | float
) -> list[httpx2.Response]:
    with ThreadPoolExecutor(caller_count) as pool:
        futures = [
            pool.submit(probe_client.post, "/ask", params={**SHARED_REQUEST, **params})
            for _ in range(caller_count)
        ]
        return [future.result() for future in futures]


@contextmanager
def running_request(
    stack: Stack, probe_client: httpx2.Client, **params: str | float
) -> Iterator[None]:
    """Send a request, wait until a worker runs it, and disconnect at the end of the block.

    The connection has no timeout, because the connection could otherwise close before the worker
    runs the request.
    """
    request = probe_client.build_request("POST", f"/ask?{urlencode({**SHARED_REQUEST, **params})}")
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    with socket.create_connection((LOOPBACK, stack.api_port)) as connection:
        target = request.url.raw_path.decode()
        connection.sendall(f"POST {target} HTTP/1.1\r\n{head}\r\n".encode())
        eventually(lambda: read_counter(stack), what="the run")
        yield


def test_equal_concurrent_requests_share_one_run(
    probe_stack: Stack, worker: Running, probe_client: httpx2.Client
) -> None:
    replies = ask_concurrently(probe_client, 12, sleep=1)
    assert [reply.json()["data"] for reply in replies] == [{"echo": "shared"}] * 12
    assert read_counter(probe_stack) == 1
    require_no_redis_keys(probe_stack)


def test_equal_concurrent_requests_share_an_error_and_the_next_request_runs_anew(
    probe_stack: Stack, worker: Running, probe_client: httpx2.Client
) -> None:
    replies = ask_concurrently(probe_client, 5, sleep=1, end="refuse")
    assert {reply.status_code for reply in replies} == {503}
    assert read_counter(probe_stack) == 1
    assert probe_client.post("/ask", params=SHARED_REQUEST).status_code == 200
    assert read_counter(probe_stack) == 2


def test_shared_run_continues_for_second_caller_after_first_disconnects(
    probe_stack: Stack, worker: Running, probe_client: httpx2.Client
) -> None:
    redis = probe_stack.resources.redis
    with ThreadPoolExecutor(1) as pool:
        with running_request(probe_stack, probe_client, sleep=0.5, steps=4):
            second_reply = pool.submit(
                probe_client.post, "/ask", params={**SHARED_REQUEST, "sleep": 0.5, "steps": 4}
            )
            eventually(lambda: redis.zcard(CALLERS_KEY) == 2, what="the second caller")
        assert second_reply.result().json()["data"] == {"echo": "shared"}
    assert (read_counter(probe_stack), read_counter(probe_stack, STEPS_KEY)) == (1, 4)


def test_shared_run_stops_at_its_next_step_after_last_caller_disconnects(
    probe_stack: Stack, worker: Running, probe_client: httpx2.Client
) -> None:
    redis = probe_stack.resources.redis
    # The request has so many steps, and such a long time limit, that it can't end by itself during
    # the test.
    with running_request(probe_stack, probe_client, sleep=0.1, steps=10_000, seconds=600):
        assert redis.exists(RUN_KEY)
    eventually(lambda: not redis.exists(CALLERS_KEY), what="no caller")
    step_count = read_counter(probe_stack, STEPS_KEY)
    eventually(lambda: not redis.exists(RUN_KEY), what="the end of the run")
    # After the caller has disconnected, the worker finishes only the current step.
    assert read_counter(probe_stack, STEPS_KEY) <= step_count + 1
    # If another caller sends the cancelled request again, the worker answers immediately.
    assert probe_client.post("/ask", params=SHARED_REQUEST).status_code == 200


@pytest.mark.tier("faults")
def test_lease_of_killed_worker_expires_so_that_the_next_worker_answers(
    probe_stack: Stack, shared_worker: SharedWorker, worker: Running, probe_client: httpx2.Client
) -> None:
    with ThreadPoolExecutor(1) as pool:
        # Use requests that take only a few seconds, because the second worker may run the first
        # caller's request before the second caller's request.
        params: Params = {**SHARED_REQUEST, "sleep": 1, "steps": 3, "seconds": CALLER_WAIT_SECONDS}
        first_reply = pool.submit(probe_client.post, "/ask", params=params)
        eventually(lambda: read_counter(probe_stack), what="the run")
        worker.kill()
        redis = probe_stack.resources.redis
        assert redis.exists(RUN_KEY)
        shared_worker.start()
        eventually(lambda: not redis.exists(RUN_KEY), what="the end of its lease")
        assert probe_client.post("/ask", params=SHARED_REQUEST).status_code == 200
        # The first caller has waited since the worker was killed, and gets an answer from the
        # second worker.
        assert first_reply.result().status_code == 200


def test_request_returned_by_stopping_worker_is_run_by_the_next_worker(
    probe_stack: Stack, shared_worker: SharedWorker, worker: Running, probe_client: httpx2.Client
) -> None:
    with ThreadPoolExecutor(1) as pool:
        # The request takes longer than the grace period of the stopping worker.
        params: Params = {"text": "on", "sleep": 3, "seconds": CALLER_WAIT_SECONDS}
        reply = pool.submit(probe_client.post, "/ask", params=params)
        eventually(lambda: read_counter(probe_stack), what="the run")
        worker.terminate()
        worker.process.wait(20)
        # The stopping worker has released its lease, so that the next worker can start immediately.
        assert not list(probe_stack.resources.redis.scan_iter("pressroom:running:*"))
        assert list_input_keys(probe_stack)
        shared_worker.start()
        assert reply.result().json()["data"] == {"echo": "on"}
    assert read_counter(probe_stack) == 2


def test_request_lost_by_redis_is_enqueued_again_and_answered(
    probe_stack: Stack, worker: Running, probe_client: httpx2.Client
) -> None:
    os.kill(worker.pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(1) as pool:
            reply = pool.submit(probe_client.post, "/ask", params={"text": "lost", "seconds": 40})
            eventually(lambda: list_input_keys(probe_stack), what="the call")
            probe_stack.resources.redis.flushdb()
            os.kill(worker.pid, signal.SIGCONT)
            assert reply.result().json()["data"] == {"echo": "lost"}
    finally:
        os.kill(worker.pid, signal.SIGCONT)


def test_timeout_of_one_caller_does_not_affect_others_sharing_the_run(
    probe_stack: Stack, worker: Running, probe_client: httpx2.Client
) -> None:
    with ThreadPoolExecutor(2) as pool:
        patient_reply = pool.submit(
            probe_client.post, "/ask", params={**SHARED_REQUEST, "sleep": 1.5}
        )
        eventually(lambda: read_counter(probe_stack), what="the run")
        hasty_reply = pool.submit(
            probe_client.post, "/ask", params={**SHARED_REQUEST, "seconds": 0.2}
        )
        assert hasty_reply.result().status_code == 504
        assert patient_reply.result().status_code == 200


def test_large_worker_answer_reaches_its_caller_completely(
    worker: Running, probe_client: httpx2.Client
) -> None:
    text = "long answer " * 2_000
    assert probe_client.post("/ask", params={"text": text}).json()["data"] == {"echo": text}
