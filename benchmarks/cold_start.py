"""Measures how long a warm start takes, from `pressroom up` to the response to the first upload.

The baseline run starts only services such as Postgres and Redis, without Pressroom's processes.
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2

from benchmarks.measure import Finding, alternate, is_full_size, median_and_spread
from benchmarks.running_stack import start_stack, stop_stack
from devstack.harness.embedded_services import embedded_services

BAR_SECONDS = 6.0


def run() -> list[Finding]:
    with (
        TemporaryDirectory(prefix="pressroom-bench-") as whole,
        TemporaryDirectory(prefix="pressroom-bench-") as services_only,
    ):
        pairs = alternate(
            lambda: _measure_first_upload(Path(whole)),
            lambda: _measure_services(Path(services_only)),
            rounds=7 if is_full_size() else 5,
        )
    seconds, spread = median_and_spread([product_time for product_time, _ in pairs])
    details = {
        "services_alone_s": round(
            median_and_spread([baseline_time for _, baseline_time in pairs])[0], 2
        ),
        "ratio": round(
            median_and_spread(
                [product_time / baseline_time for product_time, baseline_time in pairs]
            )[0],
            2,
        ),
    }
    met = seconds <= BAR_SECONDS
    return [
        Finding(
            "cold-start: to first upload",
            seconds,
            "s",
            f"≤ {BAR_SECONDS:g} s",
            met,
            spread,
            details,
        )
    ]


def _measure_first_upload(home: Path) -> float:
    start = time.perf_counter()
    stack = start_stack(home)
    try:
        reply = httpx2.post(
            f"{stack['api_url']}/attachments",
            headers={"Authorization": f"Bearer {stack['demo']['api_key']}"},
            files={"file": ("sample.jpg", (home / "sample.jpg").read_bytes())},
            timeout=60,
        )
        assert reply.status_code == httpx2.codes.OK, reply.text
        return time.perf_counter() - start
    finally:
        stop_stack(home)


def _measure_services(home: Path) -> float:
    start = time.perf_counter()
    with embedded_services(home):
        return time.perf_counter() - start
