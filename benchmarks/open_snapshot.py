"""The queue beside a snapshot that stays open while 100,000 jobs of one owner begin and end."""

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import Finding, alternate, full_size, median_and_spread, percentile
from core.queues import Queue
from core.scopes import Scope
from devstack.harness.embedded_services import embedded_services
from devstack.harness.ended_jobs import add_ended_jobs, open_snapshot
from devstack.harness.opening import open_stack
from devstack.harness.stack import Stack
from services.jobs.kinds import JobKind, register_kind
from services.jobs.outbox import enqueue_job
from services.jobs.scan_paces import SweepPaces
from services.jobs.sweep import sweep_jobs
from services.jobs.transitions import claim_job, complete_job

ENDED = 1_000_000 if full_size() else 100_000
ACTS = 50
MAX_SWEEP_MS = 2.0
MOST_TIMES = 1.3
OWNER = 7
SUBJECT = 1
# No worker runs these jobs.
IDLE = register_kind(
    JobKind(
        name="benchmark.idle",
        run=lambda _resources, _lease: None,
        queue=Queue.BULK,
        scope=Scope.ATTACHMENT,
        retryable=True,
    )
)


def run() -> list[Finding]:
    """The same acts in a database without such a snapshot are the baseline."""
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
            return [_sweeps(beside, without), _turns(beside, without)]


def _sweeps(beside: Stack, without: Stack) -> Finding:
    """Sweeps of an empty queue, each with what a worker's sweeper remembers of those before."""
    first: dict[str, float] = {}

    def of(stack: Stack, times: list[float]) -> Callable[[], float]:
        paces = SweepPaces()
        first[stack.name] = _ms(lambda: sweep_jobs(stack.resources, paces=paces))

        return _p50_of(lambda: sweep_jobs(stack.resources, paces=paces), times)

    times: list[float] = []
    bare_times: list[float] = []
    pairs = alternate(of(beside, times), of(without, bare_times))
    p50, spread = median_and_spread([mine for mine, _ in pairs])
    details = {
        "ended_jobs": ENDED,
        "p99_ms": round(percentile(times, 0.99), 2),
        "without_p50_ms": round(percentile(bare_times, 0.5), 2),
        "whole_look_ms": round(first[beside.name], 1),
        "without_whole_look_ms": round(first[without.name], 1),
    }
    return Finding(
        "open-snapshot: empty sweep", p50, "ms", "≤ 2 ms", p50 <= MAX_SWEEP_MS, spread, details
    )


def _turns(beside: Stack, without: Stack) -> Finding:
    """Enqueueing, claiming and ending one job after the other, of the owner with the many."""

    def of(stack: Stack, times: list[float]) -> Callable[[], float]:
        def turn() -> None:
            with stack.resources.unit_of_work() as uow:
                job_id = enqueue_job(
                    uow, IDLE, user_id=None, on_behalf_of=OWNER, subject_id=SUBJECT
                ).id
            with stack.resources.unit_of_work() as uow:
                lease = claim_job(uow, job_id)
            assert lease is not None
            with stack.resources.unit_of_work() as uow:
                complete_job(uow, lease, {})

        return _p50_of(turn, times)

    times: list[float] = []
    bare_times: list[float] = []
    pairs = alternate(of(beside, times), of(without, bare_times))
    ratio, spread = median_and_spread([mine / plain for mine, plain in pairs])
    details = {
        "p50_ms": round(percentile(times, 0.5), 2),
        "without_p50_ms": round(percentile(bare_times, 0.5), 2),
    }
    return Finding(
        "open-snapshot: enqueue, claim, end",
        ratio,
        "×",
        "≤ 1.3 ×",
        ratio <= MOST_TIMES,
        spread,
        details,
    )


def _p50_of(act: Callable[[], object], times: list[float]) -> Callable[[], float]:
    """Measures some acts, and puts what each took into ``times``, in milliseconds."""

    def measure() -> float:
        found = [_ms(act) for _ in range(ACTS)]
        times.extend(found)
        return percentile(found, 0.5)

    return measure


def _ms(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return 1000 * (time.perf_counter() - began)
