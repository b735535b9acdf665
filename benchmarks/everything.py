"""Measures how much Pressroom's features slow each other down when all are used at once.

The load has seven parts: charges, uploads, sign-ups, imports, searches for members, changes to
members (which trigger webhooks), and reports from mail providers. First, the benchmark runs each
part of the load by itself. Then, the benchmark runs all seven parts simultaneously for ten minutes,
or for one minute in the short form of the benchmark. Each part of the load sends requests at the
same rate, whether or not the other parts run. The module ``everything_parts`` defines the requests
and their rates.

The result for a part of the load is a ratio of response times: the 99th percentile while all parts
run, divided by the 99th percentile while only this part runs. The benchmark also computes this
ratio for each fifth of the simultaneous run, and reports the smallest and the largest of the five
ratios as the spread. If a queue of jobs grew during the simultaneous run, responses in the last
fifth of the run would be much slower than responses in the first fifth.

The response time of an upload includes the conversion, and the response time of an import is the
duration of its job. For member changes, the benchmark also measures the delay from the change to
the delivery of the webhook. For reports, the benchmark also measures the delay from the receipt of
a report to the report's effect on the member.

For each process, the benchmark compares the mean memory in the last fifth of the simultaneous run
with the mean memory in the second fifth. In the first fifth of the run, the processes still fill
their caches and connection pools. The memory of a process may grow by a tenth, because imports and
image conversions need memory, and their number differs between the fifths of the run. In ten
minutes, the API gets more than 100,000 requests. If each request leaked one kilobyte, the memory of
the API would grow by a third between the second fifth and the last fifth of the run.
"""

import asyncio
import itertools
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus

from benchmarks.everything_parts import Delays, Part, create_parts
from benchmarks.http_load import Reply, offer_requests
from benchmarks.measure import NO_BAR, Finding, is_full_size, percentile
from benchmarks.own_stack import own_stack
from benchmarks.process_use import MemorySamples, measure_cpu_seconds, sample_memory
from devstack import LOOPBACK
from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from devstack.supervisor.programs import is_responding

SECONDS_AT_ONCE = 600 if is_full_size() else 60
SECONDS_BY_ITSELF = 120 if is_full_size() else 20
WARM_UP_SECONDS = 10
SAMPLE_EVERY_SECONDS = 2.0
PERIODS = 5
MAX_SLOWDOWN = 3.0
MAX_MEMORY_GROWTH = 1.1
# Maps the name of each worker process to its queues and to the number of jobs of each queue that
# the process runs at the same time.
WORKERS = {
    "waiting worker": (("request", "photos", "money", "mail", "webhooks", "maintenance"), 8),
    "media worker": (("media",), 2),
    "bulk worker": (("export", "bulk"), 1),
}
# The HTTP statuses of responses that aren't errors, although the caller must wait or retry. The
# results for a part of the load contain the number of responses with each status except 200. A part
# of the load misses its target if a response has a status that is neither 200 nor in
# ``_DOCUMENTED``.
_DOCUMENTED = (
    HTTPStatus.ACCEPTED,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
# Set a very high rate limit, so that the API counts calls but never refuses any.
_COUNTED = {"PRESSROOM_RATE_LIMIT_DEFAULT": "1000000/minute", "PRESSROOM_LOG_LEVEL": "warning"}
_UNFINISHED = "SELECT 1 FROM jobs WHERE status IN ('queued', 'running') LIMIT 1"
_FAILED = "SELECT kind, error FROM jobs WHERE status = 'failed' LIMIT 5"


@dataclass(frozen=True)
class Outcome:
    """The measured response times and response statuses of a part of the load.

    Attributes:
        delays: the response times under the name of the part, and other measured delays, such as
            the delay of a webhook, under their own names.
        other_responses: the number of responses except 200, by status and error code.
    """

    delays: Delays
    achieved_per_second: float
    other_responses: Counter[str]

    @property
    def is_as_documented(self) -> bool:
        documented = {str(status.value) for status in _DOCUMENTED}
        return documented >= {response.partition(" ")[0] for response in self.other_responses}


@dataclass
class EverythingBench:
    """A running stack with an API process and workers, and the load that the stack gets.

    Attributes:
        pids: maps the name of each process to its process id.
    """

    stack: Stack
    parts: Sequence[Part]
    pids: dict[str, int]

    def offer(self, parts: Sequence[Part], seconds: float) -> tuple[dict[str, Outcome], float]:
        """Send the requests of each part of the load, and wait until the requests take effect.

        Return the measured response times of each part of the load, and the average number of cores
        that the stack and the load generator used.

        Args:
            parts: the parts of the load that run at the same time. If ``parts`` is empty, the
                method measures the idle stack.
        """
        cpu_seconds = measure_cpu_seconds()
        start = time.perf_counter()
        replies = asyncio.run(self._offer_all(parts, seconds))
        eventually(
            lambda: not self.stack.query(_UNFINISHED), within=300, what="the end of all jobs"
        )
        busy_cores = (measure_cpu_seconds() - cpu_seconds) / (time.perf_counter() - start)
        failed_jobs = self.stack.query(_FAILED)
        assert not failed_jobs, failed_jobs
        outcomes = {
            part.name: _build_outcome(part, part_replies, max(elapsed, seconds))
            for part, (part_replies, elapsed) in zip(parts, replies, strict=True)
        }
        return outcomes, busy_cores

    async def _offer_all(
        self, parts: Sequence[Part], seconds: float
    ) -> list[tuple[list[Reply], float]]:
        offers = (self._offer_part(part, seconds) for part in parts)
        replies, _ = await asyncio.gather(asyncio.gather(*offers), asyncio.sleep(seconds))
        return replies

    async def _offer_part(self, part: Part, seconds: float) -> tuple[list[Reply], float]:
        """Send the requests of one part of the load. Return the responses and the seconds taken."""
        start = time.perf_counter()
        requests = part.build_requests(round(part.per_second * seconds))
        replies = await offer_requests(self.stack.api_port, requests, per_second=part.per_second)
        return replies, time.perf_counter() - start


def run() -> list[Finding]:
    with _everything_bench() as bench:
        # Warm up the processes, so that they load their code before the measurement.
        bench.offer(bench.parts, WARM_UP_SECONDS)
        by_itself: dict[str, Outcome] = {}
        _, idle_cores = bench.offer([], SECONDS_BY_ITSELF)
        cores = {"idle": idle_cores}
        for part in bench.parts:
            outcomes, cores[part.name] = bench.offer([part], SECONDS_BY_ITSELF)
            by_itself |= outcomes
        with sample_memory(bench.pids, every=SAMPLE_EVERY_SECONDS) as memory:
            at_once, busy_cores = bench.offer(bench.parts, SECONDS_AT_ONCE)
        return [
            *(
                finding
                for part in bench.parts
                for finding in _compare(part, by_itself[part.name], at_once[part.name])
            ),
            *(_compare_memory(memory, name) for name in bench.pids),
            _describe_cores(busy_cores, cores),
        ]


def _build_outcome(part: Part, replies: Sequence[Reply], seconds: float) -> Outcome:
    """Return the measured response times and response statuses of a part of the load.

    ``seconds``: the time from the first request to the last response, or the planned duration of
    the run if the planned duration is longer.
    """
    accepted = [reply for reply in replies if 200 <= reply.status < 300]
    responses = (f"{reply.status} {reply.error_code}".strip() for reply in replies)
    return Outcome(
        delays={
            part.name: [reply.seconds for reply in accepted],
            **part.await_effects(len(accepted)),
        },
        achieved_per_second=len(accepted) / seconds,
        other_responses=Counter(response for response in responses if response != "200"),
    )


def _compare(part: Part, by_itself: Outcome, at_once: Outcome) -> Iterator[Finding]:
    """Compare the response times of ``part`` in its own run and in the simultaneous run."""
    details_of_part = {
        "offered_per_s": part.per_second,
        "achieved_per_s": round(at_once.achieved_per_second, 2),
        "other_responses": dict(at_once.other_responses),
        "by_itself_other_responses": dict(by_itself.other_responses),
    }
    for name, delays in at_once.delays.items():
        quiet = by_itself.delays[name]
        quiet_p99 = percentile(quiet, 0.99)
        ratio = percentile(delays, 0.99) / quiet_p99
        ratios = [percentile(period, 0.99) / quiet_p99 for period in _split(delays)]
        details = {
            "p50_ms": _ms(delays, 0.5),
            "p99_ms": _ms(delays, 0.99),
            "by_itself_p50_ms": _ms(quiet, 0.5),
            "by_itself_p99_ms": _ms(quiet, 0.99),
            **(details_of_part if name == part.name else {}),
        }
        met = ratio <= MAX_SLOWDOWN and at_once.is_as_documented and by_itself.is_as_documented
        spread = (min(ratios), max(ratios))
        bar = f"≤ {MAX_SLOWDOWN:g} ×"
        yield Finding(f"everything: p99 of {name}", ratio, "×", bar, met, spread, details)


def _compare_memory(memory: MemorySamples, name: str) -> Finding:
    means = [sum(period) / len(period) for period in _split(memory[name])]
    growth = means[-1] / means[1]
    details = {
        "mb_by_period": [round(megabytes, 1) for megabytes in means],
        "most_mb": round(max(memory[name]), 1),
    }
    bar = f"≤ {MAX_MEMORY_GROWTH:g} × the second fifth"
    met = growth <= MAX_MEMORY_GROWTH
    return Finding(f"everything: {name} memory", growth, "×", bar, met, (growth, growth), details)


def _describe_cores(busy_cores: float, cores_by_itself: Mapping[str, float]) -> Finding:
    """Return the share of the machine's CPU time that the stack and the load generator used.

    If the load uses nearly all CPU time, the request rates are too high for the machine, and the
    queues of jobs grow without bound.
    """
    share = 100 * busy_cores / (os.cpu_count() or 1)
    details = {f"{name}, cores": round(cores, 2) for name, cores in cores_by_itself.items()}
    name = "everything: busy CPU time"
    return Finding(name, share, "%", NO_BAR, True, (share, share), details)


def _split(values: Sequence[float]) -> list[Sequence[float]]:
    """Split the measurements of a run, in chronological order, into five groups of equal size.

    If there are fewer than five measurements, return all of them as a single group.
    """
    if len(values) < PERIODS:
        return [values]
    bounds = [len(values) * number // PERIODS for number in range(PERIODS + 1)]
    return [values[start:end] for start, end in itertools.pairwise(bounds)]


def _ms(seconds: Sequence[float], share: float) -> float:
    return round(1000 * percentile(seconds, share), 1)


@contextmanager
def _everything_bench() -> Iterator[EverythingBench]:
    with own_stack("everything") as stack:
        receiver_port = free_port()
        stack.start_sandbox()
        with stack.starting_together():
            stack.start(
                "receiver",
                str(receiver_port),
                module="benchmarks.hook_receiver",
                ready=lambda: is_responding(receiver_port, "/taken"),
            )
            processes = {"API": stack.start_api(**_COUNTED)}
            for name, (queues, limit) in WORKERS.items():
                processes[name] = stack.start_worker(*queues, concurrency=limit, **_COUNTED)
        parts = create_parts(stack, f"http://{LOOPBACK}:{receiver_port}/hooks", SECONDS_AT_ONCE)
        pids = {name: process.pid for name, process in processes.items()}
        yield EverythingBench(stack, parts, pids)
