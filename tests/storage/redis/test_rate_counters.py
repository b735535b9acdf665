"""Windows of rate limits are those of Redis' clock, whatever the hosts' clocks say."""

import time

import pytest

from storage.redis.rate_counters import RateCounters, parse_limits
from tests.stack import Stack


@pytest.mark.parametrize("limit", ["3/day", "3000/day"], ids=["singly", "in blocks"])
def test_processes_whose_clocks_differ_count_in_one_window(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    [item] = parse_limits(limit)
    names = ("skewed", str(time.time_ns()))
    counters = RateCounters(stack.settings()), RateCounters(stack.settings())
    real, left = time.time, []
    for _ in range(2):
        for number, each in enumerate(counters):
            ahead = number * 3 * 24 * 3600
            monkeypatch.setattr(time, "time", lambda ahead=ahead: real() + ahead)
            status = each.count(item, *names)
            assert status is not None
            assert 0 < status.reset <= 24 * 3600
            left.append(status.remaining)
    for each in counters:
        each.close()
    block = max(item.amount // 300, 1)
    used = [item.amount - remaining for remaining in left]
    expected = [1, 2, 3, 4] if block == 1 else [1, block + 1, 2, block + 2]
    assert used == expected
