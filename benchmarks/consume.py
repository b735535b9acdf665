"""Compares how fast Pressroom and two minimal HTTP routes charge credits.

The module ``bare_consume`` defines the two minimal routes. The first minimal route calls the same
SQL function as Pressroom to charge credits. The second minimal route uses two small tables instead
of Pressroom's tables, and checks no credentials.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.bare_consume import CREATE_LEAN_TABLES, LEAN_PATH
from benchmarks.http_load import build_json_request, send_requests
from benchmarks.measure import Finding, alternate, is_full_size, median_and_spread, percentile
from devstack.harness.embedded_services import embedded_services
from devstack.harness.opening import open_stack
from devstack.harness.stack import Stack
from devstack.supervisor.ports import PortPicker
from devstack.supervisor.programs import is_responding

CALLERS = 32
CALLS = 60 if is_full_size() else 25
ACCOUNTS = 1_000
ROUNDS = 7 if is_full_size() else 5
MIN_SPEEDUP = 0.85
MIN_SPEEDUP_OF_LEAN = 0.75
MAX_P99_SLOWDOWN = 1.5
PATH = "/auxilia/credits/consume"
BODY = b'{"amount_credit": 0.0001, "source_id": "post-1", "meta": {"words": 12}}'


def run() -> list[Finding]:
    with _start_stacks() as (stack, bare_port):
        keys = [stack.create_key(stack.create_owner().user_id) for _ in range(ACCOUNTS)]
        _grant_credits(stack)
        stack.query(CREATE_LEAN_TABLES, ACCOUNTS)
        return [
            *_compare(stack, bare_port, "one hot account", keys[:1]),
            *_compare(stack, bare_port, "1,000 accounts", keys),
            _compare_lean(stack, bare_port, keys),
        ]


@contextmanager
def _start_stacks() -> Iterator[tuple[Stack, int]]:
    with TemporaryDirectory(prefix="pressroom-bench-") as directory:
        home = Path(directory)
        picker = PortPicker(home / "ports.json")
        port, bare_port = picker.pick("api"), picker.pick("bare")
        with (
            embedded_services(home) as services,
            open_stack(services, home, "consume", 1, port) as stack,
        ):
            stack.start_api(PRESSROOM_LOG_LEVEL="warning")
            stack.start(
                "bare",
                str(bare_port),
                module="benchmarks.bare_consume",
                ready=lambda: is_responding(bare_port, "/healthz"),
            )
            yield stack, bare_port


def _grant_credits(stack: Stack) -> None:
    stack.query(
        "SELECT e.id FROM users AS u CROSS JOIN LATERAL credit_append("
        "u.id, 'grant', 1000000, 1000000, 'operator', 'benchmark', NULL, NULL, NULL, NULL) AS e"
    )


def _compare(stack: Stack, bare_port: int, name: str, keys: list[str]) -> list[Finding]:
    p99s: dict[int, list[float]] = {stack.api_port: [], bare_port: []}

    def per_second(port: int) -> float:
        rate, times = _charge(port, PATH, keys)
        p99s[port].append(percentile(times, 0.99))
        return rate

    pairs = alternate(
        lambda: per_second(stack.api_port), lambda: per_second(bare_port), rounds=ROUNDS
    )
    ratio, spread = median_and_spread(
        [product_rate / baseline_rate for product_rate, baseline_rate in pairs]
    )
    details = {
        "product_per_s": round(median_and_spread([product_rate for product_rate, _ in pairs])[0]),
        "bare_per_s": round(median_and_spread([baseline_rate for _, baseline_rate in pairs])[0]),
        "callers": CALLERS,
    }
    # Skip the first round, which only warms up the product and the baseline.
    product_p99s, bare_p99s = (times[1:] for times in p99s.values())
    slowdown, slowdown_spread = median_and_spread(
        [product / bare for product, bare in zip(product_p99s, bare_p99s, strict=True)]
    )
    p99_details = {
        "product_p99_ms": round(1000 * median_and_spread(product_p99s)[0], 1),
        "bare_p99_ms": round(1000 * median_and_spread(bare_p99s)[0], 1),
    }
    bar, met = f"≥ {MIN_SPEEDUP:g} ×", ratio >= MIN_SPEEDUP
    p99_bar, is_p99_met = f"≤ {MAX_P99_SLOWDOWN:g} ×", slowdown <= MAX_P99_SLOWDOWN
    return [
        Finding(f"consume: {name}", ratio, "×", bar, met, spread, details),
        Finding(
            f"consume: p99, {name}",
            slowdown,
            "×",
            p99_bar,
            is_p99_met,
            slowdown_spread,
            p99_details,
        ),
    ]


def _compare_lean(stack: Stack, bare_port: int, keys: list[str]) -> Finding:
    account_ids = [str(number) for number in range(1, ACCOUNTS + 1)]
    pairs = alternate(
        lambda: _charge(stack.api_port, PATH, keys)[0],
        lambda: _charge(bare_port, LEAN_PATH, account_ids)[0],
        rounds=ROUNDS,
    )
    ratio, spread = median_and_spread([product / lean for product, lean in pairs])
    details = {
        "product_per_s": round(median_and_spread([product for product, _ in pairs])[0]),
        "lean_per_s": round(median_and_spread([lean for _, lean in pairs])[0]),
    }
    bar, met = f"≥ {MIN_SPEEDUP_OF_LEAN:g} ×", ratio >= MIN_SPEEDUP_OF_LEAN
    name = "consume: 1,000 accounts, lean tables"
    return Finding(name, ratio, "×", bar, met, spread, details)


def _charge(port: int, path: str, credentials: list[str]) -> tuple[float, list[float]]:
    """Return the charges per second, and the response time of each charge in seconds."""
    chosen = islice(cycle(credentials), CALLERS * CALLS)
    requests = [build_json_request("POST", path, each, BODY) for each in chosen]
    shares = [requests[number::CALLERS] for number in range(CALLERS)]
    start = time.perf_counter()
    times = asyncio.run(send_requests(port, shares))
    return len(requests) / (time.perf_counter() - start), times
