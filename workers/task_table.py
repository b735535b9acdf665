"""The workers' Celery tasks, one per registered kind of work.

Task names never change, because messages in the queues contain them.
"""

import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from celery import Celery
from redis.exceptions import RedisError

from core.errors import DomainError, TransientError
from core.errors.requests import REQUEST_FAILED, SERVICE_UNREACHABLE
from core.logging import get_logger
from core.queues import RequestKind
from core.telemetry import spans
from core.telemetry.attributes import SpanAttributes
from services.jobs import maintenance
from services.jobs.kinds import (
    COMPUTING_DEADLINE_SECONDS,
    RequestWork,
    list_kinds,
    list_request_work,
)
from services.jobs.lease import LeaseLost
from services.jobs.maintenance import MaintenanceKind
from storage.redis.request_work import AllCallersLeft, RequestLease
from workers import kinds_of_work  # noqa: F401 - loads the kinds
from workers.context import ProcessContext, WorkerContext
from workers.in_flight_work import WorkItem
from workers.job_runner import KILL_AFTER_SECONDS, TaskFailed, run_job

log = get_logger(__name__)

# How long progress can renew the deadline of a job's last turn, with some time for the heartbeat.
_MAX_RENEWAL_SECONDS = COMPUTING_DEADLINE_SECONDS + 2 * KILL_AFTER_SECONDS
# The time limit of work that runs only while an API caller waits. No API caller waits longer for a
# result than this time.
MAX_REQUEST_SECONDS = 60.0


def register_tasks(app: Celery, process: ProcessContext) -> None:
    job_task = _build_task(process, run_job)
    for kind in list_kinds():
        # A process pool kills the job's process at Celery's time limit. This happens only if the
        # process can't even run its heartbeat, which kills an overdue process earlier. A thread
        # pool ignores the time limits of Celery tasks.
        seconds = kind.max_stay_seconds + kind.deadline_seconds + _MAX_RENEWAL_SECONDS
        app.task(job_task, name=kind.name, throws=(TaskFailed,), time_limit=seconds)
    for request_kind, answer in list_request_work().items():
        task = _build_task(process, partial(answer_request, kind=request_kind, answer=answer))
        # Work for waiting API requests sends no task events, because events would double the number
        # of messages.
        app.task(task, name=request_kind.task, send_events=False)
    for periodic in maintenance.list_kinds():
        run = partial(run_maintenance, kind=periodic)
        app.task(_build_task(process, run), name=periodic.name, throws=(TaskFailed,))


def _build_task(process: ProcessContext, run: Callable[..., object]) -> Callable[..., None]:
    def task(**arguments: Any) -> None:
        run(process.get(), **arguments)

    return task


def answer_request(
    context: WorkerContext, *, request_id: str, kind: RequestKind, answer: RequestWork
) -> None:
    work = context.request_work
    worker = secrets.token_urlsafe(12)
    lease = work.take(request_id, worker)
    if lease is None:
        log.info("request.dropped", work=request_id)
        return
    deadline = time.monotonic() + MAX_REQUEST_SECONDS
    item = WorkItem(deadline, partial(_give_back, context, kind, lease))
    outcome: dict[str, Any]
    attributes: SpanAttributes = {"pressroom.request.kind": kind.task}
    try:
        with (
            spans.work_span(f"request {kind.task}", lease.traceparent, attributes),
            context.in_flight_work.track(item),
            context.request_leases.keep_renewed(lease, until=deadline),
        ):
            outcome = {"result": answer(context.resources, lease)}
    except AllCallersLeft:
        log.info("request.abandoned", work=request_id)
        return
    except DomainError as error:
        outcome = _describe_error(error)
    except TransientError as error:
        outcome = _describe_error(SERVICE_UNREACHABLE(reason=error))
    except Exception:  # Callers wait until an outcome is stored.
        log.exception("request.broke")
        outcome = _describe_error(REQUEST_FAILED())
    work.finish(request_id, worker, outcome)


def _give_back(context: WorkerContext, kind: RequestKind, lease: RequestLease) -> None:
    """Requeue a request for another worker, so that its caller isn't kept waiting."""
    try:
        if lease.release():
            context.resources.broker.send(kind.task, kind.queue, {"request_id": lease.request_id})
            log.info("request.handed_back", work=lease.request_id)
    except RedisError as error:
        log.warning("request.not_handed_back", reason=type(error).__name__)


def _describe_error(error: DomainError) -> dict[str, Any]:
    return {
        "error": {
            "kind": error.kind,
            "code": error.code,
            "message": error.message,
            "retry_after": error.retry_after,
        }
    }


def run_maintenance(context: WorkerContext, *, kind: MaintenanceKind) -> None:
    """Run a kind of maintenance if it is due. Early or repeated messages have no effect."""
    try:
        maintenance.run_if_due(context.resources, kind, partial(kind.run, context.resources))
    except LeaseLost:
        log.warning("maintenance.lease_lost", maintenance=kind.name)
    except Exception as error:  # The error is recorded, and the sweep runs the task again.
        log.exception("maintenance.failed", maintenance=kind.name)
        raise TaskFailed(type(error).__name__) from None
