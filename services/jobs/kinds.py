"""The kinds of durable and request-only work, each registered by the module that does the work."""

from collections.abc import Callable, Mapping
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
# True: the job stays with its process, which is to take its next turn too.
JobWork = Callable[[Resources, Lease], bool | None]
# From the caller's payload, which is the lease's, to the result.
RequestWork = Callable[[Resources, "RequestLease"], dict[str, Any]]


@dataclass(frozen=True)
class JobKind:
    """A kind of durable work, declared once by the module that does it.

    ``run`` does the work in a worker. It imports what only workers need when it is called: the API
    loads this declaration too.
    """

    name: str  # `resource.verb`, the task's name too
    queue: Queue
    scope: Scope  # what a credential needs to see or cancel such a job
    retryable: bool  # whether a failed one may be started again by its owner
    run: JobWork
    # Called in the transaction that fails or cancels a job, so that the job's subject ends with it.
    # ``None``: the subject stays as it is.
    on_abandoned: Callable[[UnitOfWork, Job], None] | None = None
    # A session needs a recent login to retry a job of this kind.
    needs_recent_login: bool = False
    # An attempt that takes longer is taken for stuck. Bulk work counts each turn by itself.
    deadline_seconds: float = 60.0
    # For so long one turn after the other may be taken in one process, which keeps what they need.
    # 0: a process has nothing that the next turn needs.
    max_stay_seconds: float = 0.0
    # Called in the transaction that starts an ended job again, so that its subject is as before.
    # False: it can't be, since what the work needs is gone.
    on_restarted: Callable[[UnitOfWork, Job], bool] | None = None
    # How long it is tried while it fails for reasons that may pass. ``None``: as the settings say.
    patience: timedelta | None = None
    # Why it failed, when that time is over. ``None``: `job.given_up`, with the last reason.
    given_up: ErrorType | None = field(default=None, hash=False)


_kinds: dict[str, JobKind] = {}
_requests: dict[RequestKind, RequestWork] = {}


def register(kind: JobKind) -> JobKind:
    if kind.name in _kinds:
        raise ValueError(f"job kind {kind.name} is registered twice")
    _kinds[kind.name] = kind
    work_metrics.begin(kind.queue, kind.name)
    return kind


def ending(
    model: type[Subject], end: Callable[[UnitOfWork, Subject, int, str], None]
) -> Callable[[UnitOfWork, Job], None]:
    """Make an ``on_abandoned`` that gives ``end`` the subject, the job's id and its status."""

    def end_with_job(uow: UnitOfWork, job: Job) -> None:
        subject = uow.session.get(model, job.subject_id)
        if subject is not None:
            end(uow, subject, job.id, job.status)

    return end_with_job


def register_request(kind: RequestKind, run: RequestWork) -> RequestKind:
    if kind in _requests:
        raise ValueError(f"kind of request {kind.task} is registered twice")
    _requests[kind] = run
    return kind


def registered_requests() -> Mapping[RequestKind, RequestWork]:
    return _requests


def registered() -> frozenset[JobKind]:
    """The kinds that the modules of this process have registered."""
    return frozenset(_kinds.values())


def find(name: str) -> JobKind | None:
    """``None`` for a kind of another release."""
    return _kinds.get(name)


def kind_named(name: str) -> JobKind:
    """Raises ``KeyError`` for a kind that no module of this process has registered."""
    return _kinds[name]
