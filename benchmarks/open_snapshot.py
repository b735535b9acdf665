"""Measures the speed of the job queue while a database snapshot stays open.

While a snapshot is open, Postgres can't remove the old row versions of ended jobs. In this
benchmark, 100,000 jobs end while a snapshot is open.
"""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import (
    Finding,
    alternate,
    is_full_size,
    measure_seconds,
    median_and_spread,
    percentile,
)
from core.permissions import Permission
from core.queues import Queue
from core.scopes import Scope
from devstack.harness.embedded_services import embedded_services
from devstack.harness.ended_jobs import add_ended_jobs, open_snapshot
from devstack.harness.opening import open_stack
from devstack.harness.stack import Stack
from services.jobs.kinds import JobKind, JobPermissions, register_kind
from services.jobs.outbox import enqueue_job
from services.jobs.scan_paces import SweepPaces
from services.jobs.sweep import sweep_jobs
from services.jobs.transitions import claim_job, complete_job

ENDED = 1_000_000 if is_full_size() else 100_000
ACTS = 50
MAX_SWEEP_MS = 2.0
MAX_SLOWDOWN = 1.3
OWNER = 7
SUBJECT = 1
# The kind of the jobs that the benchmark enqueues. The benchmark starts no worker that would run
# these jobs.
IDLE = register_kind(
    JobKind(
        name="benchmark.idle",
        run=lambda _resources, _lease: None,
        queue=Queue.BULK,
        scope=Scope.ATTACHMENT,
        permissions=JobPermissions(Permission.IMAGES, Permission.IMAGES),
        retryable=True,
    )
)


def run() -> list[Finding]:
    """Compare the speed of the job queue with and without an open database snapshot."""
    with TemporaryDirectory(prefix="pressroom-bench-") as directory:
        home = Path(directory)
        with (
            embedded_services(home) as services,
            open_stack(services, home, "beside", 1, 0) as beside,
            open_stack(services, home, "without", 2, 0) as without,
            open_snapshot(beside),
        ):
            for stack in (beside, without):
                add_ended_jobs(stack, OWNER, ENDED, kind=IDLE.name)
            return [_compare_sweeps(beside, without), _compare_jobs(beside, without)]


def _compare_sweeps(beside: Stack, without: Stack) -> Finding:
    """Measure how long a sweep takes if no job is due."""
    first_sweep_ms: dict[str, float] = {}

    def prepare(stack: Stack, times: list[float]) -> Callable[[], float]:
        paces = SweepPaces()
        first_sweep_ms[stack.name] = _measure_ms(lambda: sweep_jobs(stack.resources, paces=paces))

        return _measure_p50(lambda: sweep_jobs(stack.resources, paces=paces), times)

    times: list[float] = []
    bare_times: list[float] = []
    pairs = alternate(prepare(beside, times), prepare(without, bare_times))
    p50, spread = median_and_spread([with_snapshot for with_snapshot, _ in pairs])
    details = {
        "ended_jobs": ENDED,
        "p99_ms": round(percentile(times, 0.99), 2),
        "without_p50_ms": round(percentile(bare_times, 0.5), 2),
        "whole_look_ms": round(first_sweep_ms[beside.name], 1),
        "without_whole_look_ms": round(first_sweep_ms[without.name], 1),
    }
    return Finding(
        "open-snapshot: empty sweep", p50, "ms", "≤ 2 ms", p50 <= MAX_SWEEP_MS, spread, details
    )


def _compare_jobs(beside: Stack, without: Stack) -> Finding:
    """Measure how long it takes to enqueue, claim and complete a job."""

    def prepare(stack: Stack, times: list[float]) -> Callable[[], float]:
        def run_job() -> None:
            with stack.resources.unit_of_work() as uow:
                job_id = enqueue_job(
                    uow, IDLE, account_id=None, on_behalf_of=OWNER, subject_id=SUBJECT
                ).id
            with stack.resources.unit_of_work() as uow:
                lease = claim_job(uow, job_id)
            assert lease is not None
            with stack.resources.unit_of_work() as uow:
                complete_job(uow, lease, {})

        return _measure_p50(run_job, times)

    times: list[float] = []
    bare_times: list[float] = []
    pairs = alternate(prepare(beside, times), prepare(without, bare_times))
    ratio, spread = median_and_spread(
        [product_time / baseline_time for product_time, baseline_time in pairs]
    )
    details = {
        "p50_ms": round(percentile(times, 0.5), 2),
        "without_p50_ms": round(percentile(bare_times, 0.5), 2),
    }
    return Finding(
        "open-snapshot: enqueue, claim, end",
        ratio,
        "×",
        "≤ 1.3 ×",
        ratio <= MAX_SLOWDOWN,
        spread,
        details,
    )


def _measure_p50(action: Callable[[], object], times: list[float]) -> Callable[[], float]:
    """Return a function that repeats an action and returns its median duration in milliseconds.

    Args:
        times: the list to which the returned function appends the duration of each repetition.
    """

    def measure() -> float:
        round_times = [_measure_ms(action) for _ in range(ACTS)]
        times.extend(round_times)
        return percentile(round_times, 0.5)

    return measure


def _measure_ms(action: Callable[[], object]) -> float:
    return 1000 * measure_seconds(action)
