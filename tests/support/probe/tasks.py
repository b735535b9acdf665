"""Runs probe jobs, which exist only for tests. A test writes a plan of what a probe job does."""

import os
import signal
import time
from typing import Any

from sqlalchemy import text

from core.errors import DomainError, Kind, TransientError
from services.jobs.lease import Lease
from services.jobs.transitions import complete_job, hand_back_job, record_progress
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork


def run(resources: Resources, lease: Lease) -> None:
    """Run a probe job as described in the job's plan, which a test has written.

    The plan of a probe job may have these keys, which apply in this order:

    kill: the number of attempts that kill their own process.
    flaky: the number of attempts that fail with a transient error.
    hang: the number of attempts that don't react to anything for a minute.
    refuse: the message of a permanent error.
    sleep: the seconds of work, which a cancellation interrupts.
    steps: the number of transactions. Each transaction records progress, and inserts a row into
        `probe_effects`. Without ``steps``, the job has only one transaction.
    step_sleep: the seconds of work before each of the ``steps`` transactions.
    stuck: the number of attempts that don't even react to the signal at their deadline.
    turn: the number of steps after which the job goes back to the queue.
    """
    plan = _begin(resources, lease)
    if lease.attempt <= plan.get("kill", 0):
        os.kill(os.getpid(), signal.SIGKILL)
    if lease.attempt <= plan.get("flaky", 0):
        raise TransientError("Not now.")
    if lease.attempt <= plan.get("stuck", 0):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        time.sleep(60)
    if lease.attempt <= plan.get("hang", 0):
        time.sleep(60)
    if "refuse" in plan:
        raise DomainError(Kind.INVALID, "probe.refused", plan["refuse"])
    _pause(lease, plan.get("sleep", 0.0))
    if "steps" in plan:
        _run_steps(resources, lease, plan)
    else:
        _finish(resources, lease)


def _begin(resources: Resources, lease: Lease) -> dict[str, Any]:
    with resources.unit_of_work() as uow:
        _insert(uow, "probe_starts", lease)
        plan: dict[str, Any] = uow.session.scalar(
            text("SELECT plan FROM probe_plans WHERE id = :id"), {"id": lease.subject_id}
        )
        return plan


def _pause(lease: Lease, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while (remaining_seconds := deadline - time.monotonic()) > 0:
        lease.check_cancelled()
        time.sleep(min(remaining_seconds, 0.05))


def _finish(resources: Resources, lease: Lease) -> None:
    with resources.unit_of_work() as uow:
        # If the worker has lost the lease, `complete_job` must fail and roll back the new row in
        # `probe_effects`.
        _insert(uow, "probe_effects", lease)
        complete_job(uow, lease, {"pid": os.getpid()})


def _run_steps(resources: Resources, lease: Lease, plan: dict[str, Any]) -> None:
    total = plan["steps"]
    steps_per_turn = plan.get("turn", plan["steps"])
    first = _count_done_steps(resources, lease)
    for step in range(first, total):
        _pause(lease, plan.get("step_sleep", 0.0))
        with resources.unit_of_work() as uow:
            _insert(uow, "probe_effects", lease, step)
            record_progress(uow, lease, done=step + 1, total=total)
            if step + 1 == first + steps_per_turn and step + 1 < total:
                hand_back_job(uow, lease)
                return
    with resources.unit_of_work() as uow:
        complete_job(uow, lease, {"steps": total})


def _count_done_steps(resources: Resources, lease: Lease) -> int:
    with resources.unit_of_work() as uow:
        done = uow.session.scalar(
            text("SELECT progress_done FROM jobs WHERE id = :id"), {"id": lease.job_id}
        )
    assert isinstance(done, int)
    return done


def _insert(uow: UnitOfWork, table: str, lease: Lease, step: int | None = None) -> None:
    values = {"job_id": lease.job_id, "attempt": lease.attempt, "pid": os.getpid()}
    if step is not None:
        values["step"] = step
    names = ", ".join(values)
    places = ", ".join(f":{name}" for name in values)
    uow.session.execute(text(f"INSERT INTO {table} ({names}) VALUES ({places})"), values)
