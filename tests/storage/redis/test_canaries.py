"""Tests the canaries that measure how long each queue takes to deliver a message."""

from collections.abc import Iterator

import pytest

from core.queues import Queue
from devstack.harness.stack import Stack
from storage.redis.canaries import Canaries

QUEUE = Queue.BULK
CANARIES_KEY = "pressroom:canaries"


@pytest.fixture
def canaries(empty_stack: Stack) -> Iterator[Canaries]:
    redis = empty_stack.resources.redis
    redis.delete(CANARIES_KEY)
    yield Canaries(redis)
    redis.delete(CANARIES_KEY)


def make_older(stack: Stack, seconds: float) -> str:
    """Make the canary in transit look older, and return its send time."""
    redis = stack.resources.redis
    now, _ = redis.time()
    sent = f"{now - seconds:.6f}"
    redis.hset(CANARIES_KEY, f"{QUEUE}:waiting", sent)
    return sent


def test_canary_answered_by_a_busy_process_is_not_measured_again_when_it_arrives(
    canaries: Canaries, empty_stack: Stack
) -> None:
    assert canaries.start_if_due(QUEUE) is not None
    sent = make_older(empty_stack, 100)
    assert canaries.read_delays()[QUEUE] >= 100
    canaries.answer(QUEUE, "1.0")
    assert canaries.start_if_due(QUEUE) is None
    make_older(empty_stack, 1)
    canaries.answer(QUEUE, "1.0")
    assert canaries.read_delays()[QUEUE] < 30
    canaries.record_arrival(QUEUE, sent, "1.0")
    assert canaries.read_delays()[QUEUE] < 30
