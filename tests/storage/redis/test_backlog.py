"""Tests the limits of the queue of requests whose callers wait for a worker's response."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

import pytest

from core.errors import DomainError, Kind
from core.ids import AccountId
from core.queues import Queue, RequestKind
from devstack.harness.stack import Stack
from storage.redis import request_calls, request_scripts
from storage.redis.client import open_async_redis
from storage.redis.request_calls import RequestCalls
from storage.redis.request_work import RequestWork
from storage.resources import Resources
from storage.task_messages import queue_name

# The ids of two owners.
ANNA = AccountId(1)
BERT = AccountId(2)
QUEUE = queue_name(Queue.REQUEST)
WAITING_REQUESTS_KEY = f"pressroom:line:{Queue.REQUEST}"


class RequestQueue:
    """A request queue with callers in separate processes, and a worker."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._work = RequestWork(resources.redis)

    def join(
        self,
        name: str,
        caller: str,
        *,
        owner: AccountId | None = None,
        seconds: float = 30,
        queue: Queue = Queue.REQUEST,
        text: str = "",
    ) -> bool:
        """Let a caller wait for a request. Return whether a message to the workers was queued."""
        length_before = self._resources.redis.llen(queue_name(queue))

        async def add_caller(calls: RequestCalls) -> None:
            await calls.add_caller(
                request_scripts.build_request_id(queue, name),
                caller,
                {"text": text},
                kind=RequestKind("probe.none", queue),
                seconds=seconds,
                account_id=owner,
            )

        self._run_in_process(add_caller)
        return bool(self._resources.redis.llen(queue_name(queue)) != length_before)

    def take(self, name: str) -> bool:
        """Claim a request for the worker ``worker``, and return whether the claim succeeded."""
        request_id = request_scripts.build_request_id(Queue.REQUEST, name)
        return self._work.take(request_id, "worker") is not None

    def leave(self, name: str, caller: str) -> None:
        async def remove_caller(calls: RequestCalls) -> None:
            calls.remove_caller(request_scripts.build_request_id(Queue.REQUEST, name), caller)
            await calls.flush()

        self._run_in_process(remove_caller)

    def _run_in_process(self, action: Callable[[RequestCalls], Awaitable[None]]) -> None:
        async def run() -> None:
            client = open_async_redis(self._resources.settings)
            calls = RequestCalls(client, "here")
            loop = asyncio.ensure_future(calls.run())
            try:
                await action(calls)
            finally:
                loop.cancel()
                await client.aclose()

        asyncio.run(run())


@pytest.fixture(scope="module")
def resources(make_stack: Callable[[str], Stack]) -> Resources:
    return make_stack("line").resources


@pytest.fixture
def request_queue(resources: Resources, monkeypatch: pytest.MonkeyPatch) -> Iterator[RequestQueue]:
    """A queue that accepts at most six requests, and at most four requests of one owner."""
    monkeypatch.setattr(request_calls, "MIN_QUEUED_REQUESTS", 2)
    monkeypatch.setattr(request_calls, "MAX_QUEUED_REQUESTS", 6)
    monkeypatch.setattr(request_calls, "MAX_QUEUED_REQUESTS_PER_OWNER", 4)
    yield RequestQueue(resources)
    resources.redis.flushdb()


def join(
    request_queue: RequestQueue, owner: AccountId | None, name: str, seconds: float = 30
) -> bool:
    return request_queue.join(name, f"caller of {name}", owner=owner, seconds=seconds)


def join_rejected(request_queue: RequestQueue, owner: AccountId | None, name: str) -> DomainError:
    """Add a request that Pressroom must reject, and return the error."""
    with pytest.raises(DomainError) as caught:
        join(request_queue, owner, name)
    return caught.value


def fill(request_queue: RequestQueue, owner: AccountId | None, count: int) -> None:
    for number in range(count):
        assert join(request_queue, owner, f"{owner}-{number}")


def make_older(resources: Resources, seconds: float) -> None:
    """Pretend that all queued requests have waited for ``seconds`` more seconds."""
    for member in resources.redis.zrange(WAITING_REQUESTS_KEY, 0, -1):
        assert isinstance(member, bytes)
        resources.redis.zincrby(WAITING_REQUESTS_KEY, -seconds * 1000, member)


def test_owner_fills_only_a_share_of_the_request_queue(request_queue: RequestQueue) -> None:
    fill(request_queue, ANNA, 4)
    error = join_rejected(request_queue, ANNA, "one more")
    assert (error.kind, error.code) == (Kind.RATE_LIMITED, "queue.too_many_of_yours")
    assert error.retry_after == 1
    assert join(request_queue, BERT, "of Bert")


@pytest.mark.parametrize("owner", [ANNA, 7, None])
def test_full_request_queue_rejects_new_requests(
    request_queue: RequestQueue, owner: AccountId | None
) -> None:
    fill(request_queue, ANNA, 3)
    fill(request_queue, BERT, 3)
    error = join_rejected(request_queue, owner, "one more")
    assert (error.kind, error.code) == (Kind.UNAVAILABLE, "queue.overloaded")


def test_full_request_queue_does_not_affect_other_queues(request_queue: RequestQueue) -> None:
    fill(request_queue, ANNA, 3)
    fill(request_queue, BERT, 3)
    assert request_queue.join("photos", "caller", owner=ANNA, queue=Queue.PHOTOS)


def test_rejected_request_leaves_nothing_in_redis(
    request_queue: RequestQueue, resources: Resources
) -> None:
    fill(request_queue, ANNA, 4)
    before = sorted(resources.redis.keys())
    join_rejected(request_queue, ANNA, "one more")
    assert sorted(resources.redis.keys()) == before


def test_request_queue_with_long_waits_rejects_owners_already_in_the_queue(
    request_queue: RequestQueue, resources: Resources
) -> None:
    began_at = time.monotonic()
    fill(request_queue, ANNA, 3)
    make_older(resources, 12)
    error = join_rejected(request_queue, ANNA, "one more")
    assert error.code == "queue.overloaded"
    # ``retry_after`` is rounded up to whole seconds, and grows with the time since ``began_at``.
    assert 13 <= (error.retry_after or 0) <= 13 + time.monotonic() - began_at
    assert join_rejected(request_queue, None, "without an owner").code == "queue.overloaded"
    # Bert's request is accepted, because the maximum wait is twice as long for an owner who has no
    # queued requests.
    assert join(request_queue, BERT, "of Bert")
    make_older(resources, 12)
    assert join_rejected(request_queue, AccountId(7), "of another").code == "queue.overloaded"


def test_nearly_empty_request_queue_rejects_nothing_despite_long_waits(
    request_queue: RequestQueue, resources: Resources
) -> None:
    fill(request_queue, ANNA, 1)
    make_older(resources, 25)
    assert join(request_queue, ANNA, "one more")


def test_identical_requests_occupy_the_queue_only_once(request_queue: RequestQueue) -> None:
    fill(request_queue, ANNA, 4)
    for caller in range(10):
        assert request_queue.join(f"{ANNA}-0", f"caller {caller}", owner=BERT)


def test_caller_joining_a_running_request_is_accepted_despite_a_full_queue(
    request_queue: RequestQueue,
) -> None:
    assert join(request_queue, ANNA, "under way")
    assert request_queue.take("under way")
    fill(request_queue, ANNA, 4)
    assert not join(request_queue, ANNA, "under way")


@pytest.mark.parametrize("event", ["taken", "left", "expired", "flushed", "passed"])
def test_request_frees_its_queue_place_when_taken_abandoned_expired_flushed_or_overtaken(
    request_queue: RequestQueue, resources: Resources, event: str
) -> None:
    for number in range(4):
        join(request_queue, ANNA, f"{ANNA}-{number}", seconds=0.05 if event == "expired" else 30)
    match event:
        case "taken":
            assert request_queue.take(f"{ANNA}-2")
        case "left":
            request_queue.leave(f"{ANNA}-2", f"caller of {ANNA}-2")
        case "expired":
            time.sleep(0.06)
        case "flushed":
            resources.redis.flushdb()
        case "passed":
            make_older(resources, 2)
            assert join(request_queue, BERT, "of Bert")
            assert request_queue.take("of Bert")
    assert join(request_queue, ANNA, "one more")


def test_emptied_request_queue_leaves_no_redis_key(
    request_queue: RequestQueue, resources: Resources
) -> None:
    fill(request_queue, ANNA, 3)
    for number in range(3):
        request_queue.leave(f"{ANNA}-{number}", f"caller of {ANNA}-{number}")
    assert resources.redis.keys() == [QUEUE.encode()]


def test_owner_fills_only_a_share_of_the_request_queue_memory(
    request_queue: RequestQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_calls, "MAX_SMALL_INPUT_BYTES", 100)
    monkeypatch.setattr(request_calls, "MAX_QUEUED_BYTES_PER_OWNER", 5_000)
    large = "x" * 3_000
    assert request_queue.join("first", "caller", owner=ANNA, text=large)
    with pytest.raises(DomainError) as caught:
        request_queue.join("second", "caller", owner=ANNA, text=large)
    assert caught.value.code == "queue.too_many_of_yours"
    assert request_queue.join("of Bert", "caller", owner=BERT, text=large)
    assert request_queue.join("small", "caller", owner=ANNA)
    assert request_queue.take("first")
    assert request_queue.join("second", "caller", owner=ANNA, text=large)
