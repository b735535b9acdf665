"""One job in a worker, from its claim to its end."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial

import structlog
from celery import current_task
from celery.exceptions import SoftTimeLimitExceeded
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from core.errors import DomainError, TransientError
from core.logging import get_logger
from core.refusals.jobs import JOB_BROKE, JOB_TOO_SLOW
from services.jobs import lease as leases
from services.jobs.kinds import kind_named
from services.jobs.lease import RENEW_EVERY_SECONDS, JobCancelled, Lease, LeaseLost
from storage.resources import Resources
from workers.context import WorkerContext
from workers.held_work import Held

log = get_logger(__name__)

_MIN_RETRY_SECONDS = 1.0
_MAX_RETRY_SECONDS = 60.0

# A database that restarts, or is out of connections, is no fault of the job.
_MAY_PASS = (TransientError, OperationalError, InterfaceError, PoolTimeoutError)

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
        _heartbeat(resources, lease, held),
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
            _end_badly(context.resources, lease, error)
    except LeaseLost:
        log.warning("job.lease_lost")
    else:
        log.info("job.ended")


def _hand_back(resources: Resources, lease: Lease) -> None:
    with suppress(LeaseLost, SQLAlchemyError), resources.unit_of_work() as uow:
        leases.hand_back(uow, lease)
        log.info("job.handed_back", job_id=lease.job_id)


def _end_badly(resources: Resources, lease: Lease, error: Exception) -> None:
    # psycopg2 has several exceptions for a connection that broke; SQLAlchemy knows them all.
    is_cut = isinstance(error, DBAPIError) and error.connection_invalidated
    may_pass = is_cut or isinstance(error, _MAY_PASS)
    with resources.unit_of_work() as uow:
        match error:
            case LeaseLost():
                raise error
            case JobCancelled():
                leases.cancel(uow, lease)
            case DomainError():
                leases.fail(uow, lease, error)
            case SoftTimeLimitExceeded():
                leases.fail(uow, lease, JOB_TOO_SLOW())
            case _ if may_pass and lease.retries < kind_named(lease.kind).max_retries:
                log.warning("job.retried", reason=str(error))
                # Half of it random, so that jobs that failed together don't return together.
                longest = min(_MIN_RETRY_SECONDS * 2 ** min(lease.retries, 10), _MAX_RETRY_SECONDS)
                seconds = random.uniform(longest / 2, longest)  # noqa: S311 - no secret
                leases.retry_later(uow, lease, timedelta(seconds=seconds))
            case _:
                log.error("job.broke", exc_info=error)
                leases.fail(uow, lease, JOB_BROKE())


@contextmanager
def _heartbeat(resources: Resources, lease: Lease, held: Held) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=_renew, args=(resources, lease, held, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _renew(resources: Resources, lease: Lease, held: Held, stop: threading.Event) -> None:
    while not stop.wait(RENEW_EVERY_SECONDS):
        if held.is_overdue:
            # The lease runs out, and the sweep queues the job again.
            log.error("job.overdue", job_id=lease.job_id, kind=lease.kind)
            return
        try:
            with resources.unit_of_work() as uow:
                leases.renew(uow, lease)
        except LeaseLost:
            # The work's next write raises too; until then it goes on in vain.
            return
        except SQLAlchemyError as error:
            log.warning("lease.not_renewed", job_id=lease.job_id, reason=type(error).__name__)
