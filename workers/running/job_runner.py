"""One job in a worker, from its claim to its end."""

import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial

import structlog
from celery import current_task
from celery.exceptions import SoftTimeLimitExceeded
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from core.calls import time_limits
from core.errors import DomainError, TransientError
from core.logging import get_logger
from core.refusals.jobs import JOB_BROKE, JOB_TOO_SLOW
from services.jobs import lease as leases
from services.jobs.heartbeat import heartbeat
from services.jobs.kinds import kind_named
from services.jobs.lease import JobCancelled, Lease, LeaseLost
from services.jobs.patience import try_later
from storage.resources import Resources
from workers.context import WorkerContext
from workers.running.held_work import Held

log = get_logger(__name__)

# A database that restarts, or is out of connections, is no fault of the job.
_DATABASE_FAILURES = (OperationalError, InterfaceError, PoolTimeoutError)
_MAX_OUTAGE_SECONDS = 30.0
_OUTAGE_PAUSE_SECONDS = 0.5
_SOCKET_MODULES = frozenset({"socket", "ssl", "selectors", time_limits.__name__})

JobWork = Callable[[WorkerContext, Lease], None]


def run_job(context: WorkerContext, *, job_id: int, work: JobWork) -> None:
    """Do the job. A second delivery of its message ends at the claim."""
    resources = context.resources
    with resources.unit_of_work() as uow:
        lease = leases.claim(uow, job_id)
    if lease is None:
        log.debug("job.not_claimed", job_id=job_id)
        return
    ends_by = time.monotonic() + kind_named(lease.kind).deadline_seconds
    held = Held(ends_by, partial(_hand_back, resources, lease))
    with (
        structlog.contextvars.bound_contextvars(
            job_id=job_id, kind=lease.kind, attempt=lease.attempt, request_id=lease.request_id
        ),
        context.held.holding(held),
        heartbeat(partial(_renew, resources, lease, held)),
    ):
        _work(context, lease, work)


def _work(context: WorkerContext, lease: Lease, work: JobWork) -> None:
    began = time.monotonic()
    try:
        try:
            lease.check_cancelled()
            work(context, lease)
        except SystemExit:
            # The pool ends a process at the end of the worker's grace, or when the task has run
            # past its hard time limit; only the latter counts as a crash.
            if time.monotonic() - began < current_task.time_limit:
                _hand_back(context.resources, lease)
            raise
        except Exception as error:  # noqa: BLE001 - every failure ends the job in one way or another
            _end_for_sure(context.resources, lease, error)
    except LeaseLost:
        log.warning("job.lease_lost")
    else:
        log.info("job.ended")


def _end_for_sure(resources: Resources, lease: Lease, error: Exception) -> None:
    """As ``_end_badly``; while the database is away, try again for some seconds.

    The lease that would run out instead counts as a crash.
    """
    deadline = time.monotonic() + _MAX_OUTAGE_SECONDS
    while True:
        try:
            _end_badly(resources, lease, error)
        except SQLAlchemyError as failure:
            if not _is_database_away(failure) or time.monotonic() > deadline:
                raise
            time.sleep(_OUTAGE_PAUSE_SECONDS)
        else:
            return


def _hand_back(resources: Resources, lease: Lease) -> None:
    with suppress(LeaseLost, SQLAlchemyError), resources.unit_of_work() as uow:
        leases.hand_back(uow, lease)
        log.info("job.handed_back", job_id=lease.job_id)


def _end_badly(resources: Resources, lease: Lease, error: Exception) -> None:
    passing = _passing_reason(error)
    with resources.unit_of_work() as uow:
        match error:
            case LeaseLost():
                raise error
            case JobCancelled():
                leases.cancel(uow, lease)
            case DomainError():
                leases.fail(uow, lease, error)
            case _ if passing is not None:
                log.warning("job.retried", reason=str(error))
                patience = timedelta(seconds=resources.settings.patience)
                try_later(uow, lease, reason=passing, patience=patience)
            case SoftTimeLimitExceeded():
                log.warning("job.too_slow")
                leases.crash(uow, lease, JOB_TOO_SLOW())
            case _:
                log.error("job.broke", exc_info=error)
                leases.fail(uow, lease, JOB_BROKE())


def _passing_reason(error: Exception) -> str | None:
    """Why the work failed if that may pass by itself, in words for the job's owner."""
    if _is_database_away(error):
        return "The database does not answer."
    if isinstance(error, TransientError):
        return str(error)
    if isinstance(error, SoftTimeLimitExceeded) and _waited_for_a_server(error):
        return "A server answers too slowly."
    return None


def _is_database_away(error: Exception) -> bool:
    # psycopg2 has several exceptions for a connection that broke; SQLAlchemy knows them all.
    is_cut = isinstance(error, DBAPIError) and error.connection_invalidated
    return is_cut or isinstance(error, _DATABASE_FAILURES)


def _waited_for_a_server(error: Exception) -> bool:
    """Whether the code that the error interrupted was a socket's."""
    # The last frame is that of the signal's handler.
    last = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-2:]
    return any(frame.f_globals.get("__name__") in _SOCKET_MODULES for frame in last)


def _renew(resources: Resources, lease: Lease, held: Held) -> None:
    if held.is_overdue:
        log.error("job.overdue", job_id=lease.job_id, kind=lease.kind)
        # The lease runs out, and the sweep queues the job again.
        raise LeaseLost(lease.job_id)
    with resources.unit_of_work() as uow:
        leases.renew(uow, lease)
