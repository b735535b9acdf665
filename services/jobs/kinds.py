"""The kinds of durable and request-only work, each registered by the module that does the work."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from core.counters import work_metrics
from core.errors.catalogue import ErrorType
from core.queues import Queue, RequestKind
from core.scopes import Scope
from models import Job
from services.jobs.lease import Lease
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from storage.redis.request_work import RequestLease

Subject = TypeVar("Subject")
# Returns a generator if the job may take several turns that must run in the same process. It yields
# after each turn except the last one.
JobWork = Callable[[Resources, Lease], Generator[None, None, None] | None]
# Turns the caller's payload, which is in the lease, into the result.
RequestWork = Callable[[Resources, "RequestLease"], dict[str, Any]]


@dataclass(frozen=True)
class JobKind:
    """A kind of durable work, declared once by the module that does the work.

    ``run`` does the work in a worker. It imports what only workers need when it is called, because
    the API loads this declaration too.
    """

    name: str  # `resource.verb`, which is also the task's name
    queue: Queue
    scope: Scope  # the scope that a credential needs to see or cancel such a job
    retryable: bool  # whether its owner may start a failed job again
    run: JobWork
    # Called in the transaction that fails or cancels a job, to end the job's subject with the job.
    # Without it, the subject stays as it is.
    on_abandoned: Callable[[UnitOfWork, Job], None] | None = None
    # A session needs a recent login to retry a job of this kind.
    needs_recent_login: bool = False
    # An attempt that takes longer counts as stuck. In bulk work, the deadline holds for each turn.
    deadline_seconds: float = 60.0
    # A process may run turns of the same job for this long, because it keeps open files for them.
    # With 0, each turn can run in any process.
    max_stay_seconds: float = 0.0
    # Called in the transaction that restarts an ended job, to restore the job's subject. Returns
    # false if that is impossible, because the work's input is gone.
    on_restarted: Callable[[UnitOfWork, Job], bool] | None = None
    # A job that fails for temporary reasons is retried for this long. ``None`` stands for the
    # setting ``patience``.
    patience: timedelta | None = None
    # The error after that time. Without it, the error is `job.given_up` with the last reason.
    given_up: ErrorType | None = field(default=None, hash=False)


_kinds: dict[str, JobKind] = {}
_request_work: dict[RequestKind, RequestWork] = {}


def register_kind(kind: JobKind) -> JobKind:
    if kind.name in _kinds:
        raise ValueError(f"job kind {kind.name} is registered twice")
    _kinds[kind.name] = kind
    work_metrics.initialize_job_counters(kind.queue, kind.name)
    return kind


def register_request_kind(kind: RequestKind, run: RequestWork) -> RequestKind:
    if kind in _request_work:
        raise ValueError(f"kind of request {kind.task} is registered twice")
    _request_work[kind] = run
    return kind


def call_with_subject(
    model: type[Subject], end: Callable[[UnitOfWork, Subject, int, str], None]
) -> Callable[[UnitOfWork, Job], None]:
    """Return an ``on_abandoned`` that calls ``end`` with the subject, the job's id and status."""

    def end_with_job(uow: UnitOfWork, job: Job) -> None:
        subject = uow.session.get(model, job.subject_id)
        if subject is not None:
            end(uow, subject, job.id, job.status)

    return end_with_job


def list_kinds() -> frozenset[JobKind]:
    """Return the kinds that the loaded modules of this process registered."""
    return frozenset(_kinds.values())


def list_request_work() -> Mapping[RequestKind, RequestWork]:
    """Return the work of each kind of request that the loaded modules registered."""
    return _request_work


def find_kind(name: str) -> JobKind | None:
    """Return the kind, or ``None`` for a kind that only another release knows."""
    return _kinds.get(name)


def get_kind(name: str) -> JobKind:
    """Return the kind; raises ``KeyError`` if no module of this process registered it."""
    return _kinds[name]
