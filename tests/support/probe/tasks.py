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
    """Do what the plan says, in this order.

    kill: how many attempts kill their own process. flaky: how many attempts fail for now.
    hang: how many attempts hear of nothing for a minute. refuse: fail for good. sleep: seconds of
    work. steps: transactions with progress and an effect each, `step_sleep` seconds apart, and
    `turn` after how many a turn ends. Without steps there is one effect.
    """
    plan = _begin(resources, lease)
    if lease.attempt <= plan.get("kill", 0):
        os.kill(os.getpid(), signal.SIGKILL)
    if lease.attempt <= plan.get("flaky", 0):
        raise TransientError("Not now.")
    if lease.attempt <= plan.get("hang", 0):
        time.sleep(60)
    if "refuse" in plan:
        raise DomainError(Kind.INVALID, "probe.refused", plan["refuse"])
    _pause(lease, plan.get("sleep", 0.0))
    if "steps" in plan:
        _step_by_step(resources, lease, plan)
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
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        lease.check_cancelled()
        time.sleep(min(left, 0.05))


def _finish(resources: Resources, lease: Lease) -> None:
    with resources.unit_of_work() as uow:
        # The effect first: it is the fence after it that must take it back.
        _insert(uow, "probe_effects", lease)
        complete_job(uow, lease, {"pid": os.getpid()})


def _step_by_step(resources: Resources, lease: Lease, plan: dict[str, Any]) -> None:
    total, turn = plan["steps"], plan.get("turn", plan["steps"])
    first = _steps_done(resources, lease)
    for step in range(first, total):
        _pause(lease, plan.get("step_sleep", 0.0))
        with resources.unit_of_work() as uow:
            _insert(uow, "probe_effects", lease, step)
            record_progress(uow, lease, done=step + 1, total=total)
            if step + 1 == first + turn and step + 1 < total:
                hand_back_job(uow, lease)
                return
    with resources.unit_of_work() as uow:
        complete_job(uow, lease, {"steps": total})


def _steps_done(resources: Resources, lease: Lease) -> int:
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
