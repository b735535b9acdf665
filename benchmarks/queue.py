"""Compares the request queue with plain Celery, and measures whether waiting callers slow a GET."""

import asyncio
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.echo import BARE_QUEUE, bare_app
from benchmarks.http_load import build_request, run_callers
from benchmarks.measure import Finding, alternate, is_full_size, median_and_spread, percentile
from benchmarks.own_stack import own_stack
from devstack.harness.running import Running
from devstack.harness.stack import Stack
from devstack.supervisor.programs import is_responding

CALLS = 400 if is_full_size() else 150
CROWD = 500
CALLS_EACH = 2
CROWD_WAIT_SECONDS = 4.0


def run() -> list[Finding]:
    with _echo_stack() as (stack, api):
        key = stack.create_key(stack.create_owner().user_id)
        return [
            *_compare_round_trips(stack, key),
            *_compare_crowd(stack, api, key),
            _compare_throughput(stack, key),
        ]


@contextmanager
def _echo_stack() -> Iterator[tuple[Stack, Running]]:
    with own_stack("queue") as stack:
        module = "benchmarks.echo"
        quiet = {"PRESSROOM_LOG_LEVEL": "warning"}
        ours, bare = stack.home / "ours.ready", stack.home / "bare.ready"
        api = stack.start(
            "api",
            "api",
            str(stack.api_port),
            module=module,
            ready=lambda: is_responding(stack.api_port, "/healthz"),
            environment=quiet,
        )
        for role, mark in (("worker", ours), ("bare", bare)):
            environment = {**quiet, "PRESSROOM_READY_FILE": str(mark)}
            stack.start(role, role, module=module, ready=mark.exists, environment=environment)
        yield stack, api


def _compare_round_trips(stack: Stack, key: str) -> list[Finding]:
    request = build_request("POST", "/echo", key)
    bare = bare_app(stack.settings())

    def product() -> float:
        times.extend(asyncio.run(run_callers(stack.api_port, request, count=1, calls=CALLS)))
        return percentile(times[-CALLS:], 0.5)

    def baseline() -> float:
        round_times = []
        for _ in range(CALLS):
            start = time.perf_counter()
            bare.send_task("bare.echo", args=[{}], queue=BARE_QUEUE).get(timeout=10)
            round_times.append(time.perf_counter() - start)
        bare_times.extend(round_times)
        return percentile(round_times, 0.5)

    times: list[float] = []
    bare_times: list[float] = []
    pairs = alternate(product, baseline)
    ratio, spread = median_and_spread(
        [product_time / baseline_time for product_time, baseline_time in pairs]
    )
    details = {
        "product_p50_ms": _to_ms(percentile(times, 0.5)),
        "product_p99_ms": _to_ms(percentile(times, 0.99)),
        "baseline_p50_ms": _to_ms(percentile(bare_times, 0.5)),
        "baseline_p99_ms": _to_ms(percentile(bare_times, 0.99)),
    }
    return [Finding("queue: p50, 1 caller", ratio, "×", "≤ 1.8 ×", ratio <= 1.8, spread, details)]


def _compare_crowd(stack: Stack, api: Running, key: str) -> list[Finding]:
    """Compare how long a GET takes with 500 waiting callers and with none."""
    get = build_request("GET", "/users/me", key)
    wait = build_request("POST", f"/echo?seconds={CROWD_WAIT_SECONDS}", key)
    threads: list[int] = []

    def quiet() -> float:
        return percentile(asyncio.run(run_callers(stack.api_port, get, count=1, calls=300)), 0.99)

    def crowded() -> float:
        return asyncio.run(_get_amid_crowd())

    async def _get_amid_crowd() -> float:
        # The worker runs sixteen tasks at a time, so most of the 500 callers wait in the queue.
        # When the measurement ends, the waiting callers disconnect.
        crowd = asyncio.create_task(run_callers(stack.api_port, wait, count=CROWD, calls=1))
        await asyncio.sleep(1.5)
        assert not crowd.done()
        threads.append(_count_threads(api.pid))
        round_times = await run_callers(stack.api_port, get, count=1, calls=300)
        assert not crowd.done(), "the crowd had gone before the measurement ended"
        crowd.cancel()
        await asyncio.gather(crowd, return_exceptions=True)
        await asyncio.sleep(1.0)
        return percentile(round_times, 0.99)

    before = _count_threads(api.pid)
    pairs = alternate(crowded, quiet)
    ratio, spread = median_and_spread(
        [product_time / baseline_time for product_time, baseline_time in pairs]
    )
    more = max(threads) - before
    details = {
        "p99_ms": _to_ms(median_and_spread([product_time for product_time, _ in pairs])[0]),
        "quiet_p99_ms": _to_ms(median_and_spread([baseline_time for _, baseline_time in pairs])[0]),
    }
    return [
        Finding(
            "queue: GET p99 amid 500 waiting", ratio, "×", "≤ 3 ×", ratio <= 3, spread, details
        ),
        Finding(
            "queue: threads for 500 waiting",
            more,
            "",
            "none beyond the pool of 24",
            max(threads) <= before + 24,
            (min(threads) - before, more),
        ),
    ]


def _compare_throughput(stack: Stack, key: str) -> Finding:
    """Compare the number of calls per second of the request queue and of plain Celery."""
    request = build_request("POST", "/echo", key)
    bare = bare_app(stack.settings())

    def product() -> float:
        times.append(_measure_crowd(stack, request))
        return CROWD * CALLS_EACH / times[-1]

    def baseline() -> float:
        start = time.perf_counter()
        for _ in range(CALLS_EACH):
            sent = [bare.send_task("bare.echo", args=[{}], queue=BARE_QUEUE) for _ in range(CROWD)]
            for each in sent:
                each.get(timeout=30)
        return CROWD * CALLS_EACH / (time.perf_counter() - start)

    times: list[float] = []
    pairs = alternate(product, baseline)
    ratio, spread = median_and_spread(
        [product_time / baseline_time for product_time, baseline_time in pairs]
    )
    details = {
        "calls_per_second": round(
            median_and_spread([product_time for product_time, _ in pairs])[0]
        ),
        "baseline_calls_per_second": round(
            median_and_spread([baseline_time for _, baseline_time in pairs])[0]
        ),
    }
    return Finding(
        "queue: throughput, 500 callers", ratio, "×", "≥ 0.6 ×", ratio >= 0.6, spread, details
    )


def _measure_crowd(stack: Stack, request: bytes) -> float:
    start = time.perf_counter()
    asyncio.run(run_callers(stack.api_port, request, count=CROWD, calls=CALLS_EACH))
    return time.perf_counter() - start


def _count_threads(pid: int) -> int:
    match = re.search(r"^Threads:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert match is not None
    return int(match[1])


def _to_ms(seconds: float) -> float:
    return round(1000 * seconds, 2)
