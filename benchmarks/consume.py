"""POST consume beside a bare application that runs the same SQL and looks up a key."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.http_load import each_caller, json_request
from benchmarks.measure import Finding, alternate, full_size, median_and_spread, percentile
from devstack.harness.embedded_services import embedded_services
from devstack.harness.opening import open_stack
from devstack.harness.stack import Stack
from devstack.supervisor.ports import PortPicker
from devstack.supervisor.programs import is_responding

CALLERS = 32
CALLS = 60 if full_size() else 25
ACCOUNTS = 1_000
ROUNDS = 7 if full_size() else 5
LEAST_TIMES = 0.85
MOST_TIMES_P99 = 1.5
PATH = "/auxilia/credits/consume"
BODY = b'{"amount_credit": 0.0001, "source_id": "post-1", "meta": {"words": 12}}'


def run() -> list[Finding]:
    with _stacks() as (stack, bare_port):
        keys = [stack.create_key(stack.create_owner().user_id) for _ in range(ACCOUNTS)]
        _fill(stack)
        return [
            *_compare(stack, bare_port, "one hot account", keys[:1]),
            *_compare(stack, bare_port, "1,000 accounts", keys),
        ]


@contextmanager
def _stacks() -> Iterator[tuple[Stack, int]]:
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


def _fill(stack: Stack) -> None:
    stack.query(
        "SELECT e.id FROM users AS u CROSS JOIN LATERAL credit_append("
        "u.id, 'grant', 1000000, 1000000, 'operator', 'benchmark', NULL, NULL, NULL, NULL) AS e"
    )


def _compare(stack: Stack, bare_port: int, name: str, keys: list[str]) -> list[Finding]:
    p99s: dict[int, list[float]] = {stack.api_port: [], bare_port: []}

    def per_second(port: int) -> float:
        chosen = islice(cycle(keys), CALLERS * CALLS)
        requests = [json_request("POST", PATH, key, BODY) for key in chosen]
        shares = [requests[number::CALLERS] for number in range(CALLERS)]
        began = time.perf_counter()
        times = asyncio.run(each_caller(port, shares))
        seconds = time.perf_counter() - began
        p99s[port].append(percentile(times, 0.99))
        return len(requests) / seconds

    pairs = alternate(
        lambda: per_second(stack.api_port), lambda: per_second(bare_port), rounds=ROUNDS
    )
    ratio, spread = median_and_spread([mine / plain for mine, plain in pairs])
    details = {
        "product_per_s": round(median_and_spread([mine for mine, _ in pairs])[0]),
        "bare_per_s": round(median_and_spread([plain for _, plain in pairs])[0]),
        "callers": CALLERS,
    }
    # The first of each warmed it up.
    mine, plain = (found[1:] for found in p99s.values())
    slower, slower_spread = median_and_spread([a / b for a, b in zip(mine, plain, strict=True)])
    of_p99 = {
        "product_p99_ms": round(1000 * median_and_spread(mine)[0], 1),
        "bare_p99_ms": round(1000 * median_and_spread(plain)[0], 1),
    }
    bar, met = f"≥ {LEAST_TIMES:g} ×", ratio >= LEAST_TIMES
    bar_of_p99, met_by_p99 = f"≤ {MOST_TIMES_P99:g} ×", slower <= MOST_TIMES_P99
    return [
        Finding(f"consume: {name}", ratio, "×", bar, met, spread, details),
        Finding(
            f"consume: p99, {name}", slower, "×", bar_of_p99, met_by_p99, slower_spread, of_p99
        ),
    ]
