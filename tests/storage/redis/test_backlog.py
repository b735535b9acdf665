import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

import pytest

from core.errors import DomainError, Kind
from core.queues import Queue, RequestKind
from devstack.harness.stack import Stack
from storage.redis import request_calls, request_scripts
from storage.redis.client import open_async_redis
from storage.redis.request_calls import RequestCalls
from storage.redis.request_work import RequestWork
from storage.resources import Resources
from storage.task_messages import queue_name

ANNA, BERT = 1, 2
QUEUE = queue_name(Queue.REQUEST)
LINE = f"pressroom:line:{Queue.REQUEST}"


class Line:
    """Callers, each in a process of its own, and a worker."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._work = RequestWork(resources.redis)

    def join(
        self,
        name: str,
        caller: str,
        *,
        owner: int | None = None,
        seconds: float = 30,
        queue: Queue = Queue.REQUEST,
        text: str = "",
    ) -> bool:
        """Whether a message was sent."""
        before = self._resources.redis.llen(queue_name(queue))

        async def ask(calls: RequestCalls) -> None:
            await calls.add_caller(
                request_scripts.build_request_id(queue, name),
                caller,
                {"text": text},
                kind=RequestKind("probe.none", queue),
                seconds=seconds,
                owner_id=owner,
            )

        self._in_a_process(ask)
        return bool(self._resources.redis.llen(queue_name(queue)) != before)

    def take(self, name: str) -> bool:
        """Whether a worker could take the work."""
        request_id = request_scripts.build_request_id(Queue.REQUEST, name)
        return self._work.take(request_id, "worker") is not None

    def leave(self, name: str, caller: str) -> None:
        async def go(calls: RequestCalls) -> None:
            calls.remove_caller(request_scripts.build_request_id(Queue.REQUEST, name), caller)
            await calls.flush()

        self._in_a_process(go)

    def _in_a_process(self, action: Callable[[RequestCalls], Awaitable[None]]) -> None:
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
def line(resources: Resources, monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    """With bounds of a few works, and an age that a test needn't wait for."""
    monkeypatch.setattr(request_calls, "MIN_QUEUED_REQUESTS", 2)
    monkeypatch.setattr(request_calls, "MAX_QUEUED_REQUESTS", 6)
    monkeypatch.setattr(request_calls, "MAX_QUEUED_REQUESTS_PER_OWNER", 4)
    yield Line(resources)
    resources.redis.flushdb()


def join(line: Line, owner: int | None, name: str, seconds: float = 30) -> bool:
    return line.join(name, f"caller of {name}", owner=owner, seconds=seconds)


def error(line: Line, owner: int | None, name: str) -> DomainError:
    with pytest.raises(DomainError) as caught:
        join(line, owner, name)
    return caught.value


def fill(line: Line, owner: int | None, count: int) -> None:
    for number in range(count):
        assert join(line, owner, f"{owner}-{number}")


def make_older(resources: Resources, seconds: float) -> None:
    """As if all that stands in the line had waited for so much longer."""
    for member in resources.redis.zrange(LINE, 0, -1):
        assert isinstance(member, bytes)
        resources.redis.zincrby(LINE, -seconds * 1000, member)


def test_owner_fills_only_a_share_of_the_request_queue(line: Line) -> None:
    fill(line, ANNA, 4)
    found = error(line, ANNA, "one more")
    assert (found.kind, found.code) == (Kind.RATE_LIMITED, "queue.too_many_of_yours")
    assert found.retry_after == 1
    assert join(line, BERT, "of Bert")


def test_full_request_queue_rejects_new_requests(line: Line) -> None:
    fill(line, ANNA, 3)
    fill(line, BERT, 3)
    for owner in (ANNA, 7, None):
        found = error(line, owner, "one more")
        assert (found.kind, found.code) == (Kind.UNAVAILABLE, "queue.overloaded")


def test_full_request_queue_does_not_affect_other_queues(line: Line) -> None:
    fill(line, ANNA, 3)
    fill(line, BERT, 3)
    assert line.join("photos", "caller", owner=ANNA, queue=Queue.PHOTOS)


def test_rejected_request_leaves_nothing_in_redis(line: Line, resources: Resources) -> None:
    fill(line, ANNA, 4)
    before = sorted(resources.redis.keys())
    error(line, ANNA, "one more")
    assert sorted(resources.redis.keys()) == before


def test_request_queue_with_long_waits_rejects_owners_already_in_the_queue(
    line: Line, resources: Resources
) -> None:
    began = time.monotonic()
    fill(line, ANNA, 3)
    make_older(resources, 12)
    found = error(line, ANNA, "one more")
    assert found.code == "queue.overloaded"
    # Rounded up, after all the time that a busy machine took.
    assert 13 <= (found.retry_after or 0) <= 13 + time.monotonic() - began
    assert error(line, None, "without an owner").code == "queue.overloaded"
    # Who has nothing there did not fill it.
    assert join(line, BERT, "of Bert")
    make_older(resources, 12)
    assert error(line, 7, "of another").code == "queue.overloaded"


def test_nearly_empty_request_queue_rejects_nothing_despite_long_waits(
    line: Line, resources: Resources
) -> None:
    fill(line, ANNA, 1)
    make_older(resources, 25)
    assert join(line, ANNA, "one more")


def test_identical_requests_occupy_the_queue_only_once(line: Line) -> None:
    fill(line, ANNA, 4)
    for caller in range(10):
        assert line.join(f"{ANNA}-0", f"caller {caller}", owner=BERT)


def test_caller_joining_a_running_request_is_accepted_despite_a_full_queue(line: Line) -> None:
    assert join(line, ANNA, "under way")
    assert line.take("under way")
    fill(line, ANNA, 4)
    assert not join(line, ANNA, "under way")


@pytest.mark.parametrize("way", ["taken", "left", "expired", "flushed", "passed"])
def test_request_frees_its_queue_place_when_taken_abandoned_expired_flushed_or_overtaken(
    line: Line, resources: Resources, way: str
) -> None:
    for number in range(4):
        join(line, ANNA, f"{ANNA}-{number}", seconds=0.05 if way == "expired" else 30)
    match way:
        case "taken":
            assert line.take(f"{ANNA}-2")
        case "left":
            line.leave(f"{ANNA}-2", f"caller of {ANNA}-2")
        case "expired":
            time.sleep(0.06)
        case "flushed":
            resources.redis.flushdb()
        case "passed":
            make_older(resources, 2)
            assert join(line, BERT, "of Bert")
            assert line.take("of Bert")
    assert join(line, ANNA, "one more")


def test_emptied_request_queue_leaves_no_redis_key(line: Line, resources: Resources) -> None:
    fill(line, ANNA, 3)
    for number in range(3):
        line.leave(f"{ANNA}-{number}", f"caller of {ANNA}-{number}")
    assert resources.redis.keys() == [QUEUE.encode()]


def test_owner_fills_only_a_share_of_the_request_queue_memory(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_calls, "MAX_SMALL_INPUT_BYTES", 100)
    monkeypatch.setattr(request_calls, "MAX_QUEUED_BYTES_PER_OWNER", 5_000)
    large = "x" * 3_000
    assert line.join("first", "caller", owner=ANNA, text=large)
    with pytest.raises(DomainError) as caught:
        line.join("second", "caller", owner=ANNA, text=large)
    assert caught.value.code == "queue.too_many_of_yours"
    assert line.join("of Bert", "caller", owner=BERT, text=large)
    assert line.join("small", "caller", owner=ANNA)
    assert line.take("first")
    assert line.join("second", "caller", owner=ANNA, text=large)
