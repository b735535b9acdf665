"""Tests the counters of rate limits in Redis."""

import time

import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from storage.redis.rate_counters import RateCounters, parse_limits


@pytest.mark.parametrize("limit", ["3/day", "3000/day"], ids=["singly", "in blocks"])
def test_rate_limit_window_is_shared_by_processes_with_different_clocks(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    [item] = parse_limits(limit)
    caller = str(time.time_ns())
    counters = RateCounters(stack.settings()), RateCounters(stack.settings())
    real_time = time.time
    remaining_calls = []
    for _ in range(2):
        for number, each in enumerate(counters):
            clock_error = number * 3 * 24 * 3600
            monkeypatch.setattr(
                time, "time", lambda clock_error=clock_error: real_time() + clock_error
            )
            status = each.count(item, "skewed", caller)
            assert status is not None
            assert 0 < status.reset <= 24 * 3600
            remaining_calls.append(status.remaining)
    for each in counters:
        each.close()
    block_size = max(item.amount // 300, 1)
    used = [item.amount - remaining for remaining in remaining_calls]
    expected = [1, 2, 3, 4] if block_size == 1 else [1, block_size + 1, 2, block_size + 2]
    assert used == expected


def test_rate_counters_are_not_evicted_by_redis_and_are_cleared_in_each_new_window(
    stack: Stack,
) -> None:
    counters = RateCounters(stack.settings())
    [item] = parse_limits("1000/second")
    name = f"kept-{time.time_ns()}"
    redis = stack.resources.redis
    assert counters.count(item, name, "first")
    [key] = redis.keys(f"*:{name}:*")
    # Redis evicts only keys with an expiry.
    assert redis.ttl(key) == -1

    def is_only_caller() -> bool:
        counters.count(item, name, "second")
        return set(redis.hkeys(key)) == {b":window", b"second"}

    eventually(is_only_caller, what="the next window")
    counters.close()
