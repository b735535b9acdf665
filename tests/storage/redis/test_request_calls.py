"""Tests how API processes and workers exchange requests and results through Redis."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis
from redis.client import PubSub

from core.queues import Queue, RequestKind
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from storage.redis.client import open_async_redis
from storage.redis.notifications import CHANNEL
from storage.redis.request_calls import RequestCalls
from storage.redis.request_work import RequestWork
from tests.support.http.servers import silent_server
from tests.support.stack.given_settings import settings

PROBE_KIND = RequestKind("probe.none", Queue.REQUEST)


@contextmanager
def _open_subscription(empty_stack: Stack) -> Iterator[PubSub]:
    """Subscribe to all channels of notifications during the block."""
    subscription = PubSub(
        empty_stack.resources.redis.connection_pool, ignore_subscribe_messages=True
    )
    subscription.psubscribe(f"{CHANNEL}*")
    assert subscription.get_message(timeout=5) is None  # The confirmation is ignored.
    yield subscription
    subscription.close()


def _read_channels(subscription: PubSub, expected_count: int) -> list[str]:
    """Wait for notifications about the request with the id ``shared``. Return their channels."""
    channels: list[str] = []

    def have_all_arrived() -> bool:
        message = subscription.get_message(timeout=0.1)
        # Ignore the notifications of other stacks, which share the Redis server and its channels.
        is_relevant = message is not None and b"result:shared" in message["data"]
        if is_relevant:
            channels.append(message["channel"].decode())
        return len(channels) >= expected_count and not is_relevant

    eventually(have_all_arrived, what="all notifications")
    return sorted(channels)


async def _join(empty_stack: Stack, callers: list[tuple[str, str]]) -> None:
    """Make several callers wait for the result of the request with the id ``shared``.

    ``callers``: the process name and the caller id of each caller.
    """
    client = open_async_redis(empty_stack.settings())
    for waiter, caller in callers:
        calls = RequestCalls(client, waiter)
        looping = asyncio.ensure_future(calls.run())
        await calls.add_caller("shared", caller, {}, kind=PROBE_KIND, seconds=20)
        looping.cancel()
    await client.aclose()


@pytest.mark.parametrize(
    ("callers", "channels"),
    [
        ([("here", "here.1"), ("here", "here.2")], [f"{CHANNEL}:here"]),
        ([("here", "here.1"), ("there", "there.1")], [f"{CHANNEL}:here", f"{CHANNEL}:there"]),
        ([("here", "here.1"), ("", "nameless")], [CHANNEL, f"{CHANNEL}:here"]),
    ],
)
def test_each_process_with_waiting_callers_is_notified_once_of_a_request_result(
    empty_stack: Stack, callers: list[tuple[str, str]], channels: list[str]
) -> None:
    asyncio.run(_join(empty_stack, callers))
    work = RequestWork(empty_stack.resources.redis)
    assert work.take("shared", "worker") is not None
    with _open_subscription(empty_stack) as subscription:
        work.finish("shared", "worker", {"result": {}})
        assert _read_channels(subscription, len(channels)) == channels
    keys = ("pressroom.request", "pressroom:told:shared", "pressroom:result:shared")
    empty_stack.resources.redis.delete(*keys)


def test_concurrent_redis_steps_of_a_caller_keep_their_order(empty_stack: Stack) -> None:
    """If a request's only caller disconnects at once, Redis must keep no key of the request."""

    async def ask() -> None:
        client = open_async_redis(empty_stack.settings())
        calls = RequestCalls(client, "here")
        joining = []
        for number in range(20):
            text = {"text": "x" * 100_000 * (number % 3)}
            join = calls.add_caller(f"order-{number}", "here.1", text, kind=PROBE_KIND, seconds=20)
            joining.append(asyncio.ensure_future(join))
        await asyncio.sleep(0)
        for number in range(20):
            calls.remove_caller(f"order-{number}", "here.1")
        await calls.flush()
        await asyncio.gather(*joining)
        await client.aclose()

    asyncio.run(ask())
    redis = empty_stack.resources.redis
    assert not list(redis.scan_iter("pressroom:*:order-*"))
    assert redis.llen("pressroom.request") == 20
    redis.delete("pressroom.request")


def test_concurrent_calls_fail_at_the_same_time_when_redis_hangs() -> None:
    """Calls that waited for each other would time out one by one, at intervals of two seconds."""

    async def failure_times(url: str) -> list[float]:
        calls = RequestCalls(open_async_redis(settings(redis_url=url)), "here")
        loop = asyncio.ensure_future(calls.run())
        started_at = time.monotonic()

        async def time_until_failure(number: int) -> float:
            with pytest.raises(redis.RedisError):
                await calls.add_caller(f"work {number}", "caller", {}, kind=PROBE_KIND, seconds=20)
            return time.monotonic() - started_at

        times = await asyncio.gather(*map(time_until_failure, range(20)))
        loop.cancel()
        return times

    with silent_server() as address:
        times = asyncio.run(failure_times(f"redis://{address}/0"))
    # A call fails after two seconds, so twenty calls in a row would take forty seconds.
    assert max(times) < 20
