"""Times pairs of requests, to find out whether response times reveal which request was sent."""

import http.client
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode

from devstack import LOOPBACK
from devstack.harness.stack import Stack
from tests.support.security.people import Request

CONNECTIONS = 8


class Stopwatch:
    """Times HTTP requests that are sent one after the other over the same connection."""

    def __init__(self, stack: Stack) -> None:
        self._connection = http.client.HTTPConnection(LOOPBACK, stack.api_port, timeout=120)
        self._origin = stack.api_url

    def seconds(self, method: str, path: str, body: dict[str, Any] | None) -> float:
        is_json = path.startswith("/subscriptions")
        sent = None if body is None else (json.dumps(body) if is_json else urlencode(body))
        kind = "application/json" if is_json else "application/x-www-form-urlencoded"
        headers = {} if body is None else {"Content-Type": kind, "Origin": self._origin}
        began = time.perf_counter()
        self._connection.request(method, path, sent, headers)
        reply = self._connection.getresponse()
        reply.read()
        taken = time.perf_counter() - began
        assert reply.status < 429, path
        return taken

    def time_pairs(self, requests: Sequence[tuple[Request, Request]]) -> list[tuple[float, float]]:
        """Return how many seconds each request of each pair took.

        Every other pair is sent in reverse order, so that the order of sending has no influence.
        """
        times = []
        for number, (first, second) in enumerate(requests):
            if number % 2:
                second_time = self.seconds(*second)
                first_time = self.seconds(*first)
            else:
                first_time = self.seconds(*first)
                second_time = self.seconds(*second)
            times.append((first_time, second_time))
        self._connection.close()
        return times


def share_of_slower_first(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the fraction of request pairs in which the first request took longer."""
    return sum(first > second for first, second in pairs) / len(pairs)


def time_requests(
    stack: Stack, requests: Sequence[tuple[Request, Request]], at_once: int = CONNECTIONS
) -> list[tuple[float, float]]:
    """Send pairs of requests over several connections, and return the seconds per request."""
    shares = [requests[start::at_once] for start in range(at_once)]
    with ThreadPoolExecutor(at_once) as pool:
        timed = pool.map(lambda share: Stopwatch(stack).time_pairs(share), shares)
        return [pair for pairs in timed for pair in pairs]
