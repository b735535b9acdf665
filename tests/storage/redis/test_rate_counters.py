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
    real, left = time.time, []
    for _ in range(2):
        for number, each in enumerate(counters):
            ahead = number * 3 * 24 * 3600
            monkeypatch.setattr(time, "time", lambda ahead=ahead: real() + ahead)
            status = each.count(item, "skewed", caller)
            assert status is not None
            assert 0 < status.reset <= 24 * 3600
            left.append(status.remaining)
    for each in counters:
        each.close()
    block = max(item.amount // 300, 1)
    used = [item.amount - remaining for remaining in left]
    expected = [1, 2, 3, 4] if block == 1 else [1, block + 1, 2, block + 2]
    assert used == expected


def test_rate_counters_are_not_evicted_by_redis_and_are_cleared_in_each_new_window(
    stack: Stack,
) -> None:
    counters = RateCounters(stack.settings())
    [item] = parse_limits("1000/second")
    name, redis = f"kept-{time.time_ns()}", stack.resources.redis
    assert counters.count(item, name, "first")
    [key] = redis.keys(f"*:{name}:*")
    # Only what expires is ever dropped for room.
    assert redis.ttl(key) == -1

    def is_alone() -> bool:
        counters.count(item, name, "second")
        return set(redis.hkeys(key)) == {b":window", b"second"}

    eventually(is_alone, what="the next window")
    counters.close()
