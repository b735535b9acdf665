"""The registry of job kinds. The module that does the work registers its kind."""

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
# A function that does a job's work. If a job may take several turns that must run in the same
# process, the function returns a generator. The generator yields after each turn except the last.
JobWork = Callable[[Resources, Lease], Generator[None, None, None] | None]
# A function that computes the result of a request from the payload in the lease.
RequestWork = Callable[[Resources, "RequestLease"], dict[str, Any]]


@dataclass(frozen=True)
class JobKind:
    """A kind of durable work, declared once by the module that does the work.

    ``run`` does the work in a worker. The API loads this declaration too, so ``run`` postpones
    the import of modules that only workers need.
    """

    # The name is `resource.verb`, and is also the name of the Celery task.
    name: str
    queue: Queue
    # A credential needs this scope to see or cancel a job of this kind.
    scope: Scope
    # The owner may restart a failed job of a retryable kind.
    retryable: bool
    run: JobWork
    # A callback in the transaction that fails or cancels a job, which ends the job's subject, for
    # example an import. A kind without this callback leaves the job's subject unchanged.
    on_abandoned: Callable[[UnitOfWork, Job], None] | None = None
    # If ``needs_recent_login`` is true, a session must have logged in recently to retry a job.
    needs_recent_login: bool = False
    # An attempt that exceeds the deadline counts as stuck. The deadline of a bulk job applies to
    # each of its turns.
    deadline_seconds: float = 60.0
    # How long one process may keep running the turns of a job, for example because the process has
    # the job's files open. If ``max_stay_seconds`` is 0, each turn can run in any process.
    max_stay_seconds: float = 0.0
    # A callback in the transaction that restarts an ended job, which restores the job's subject.
    # The callback returns false if the job's input is gone.
    on_restarted: Callable[[UnitOfWork, Job], bool] | None = None
    # How long a job that fails for temporary reasons is retried. If
    # ``patience`` is ``None``, the setting of the same name decides.
    patience: timedelta | None = None
    # The error of a job whose retries ended without success. The default is `job.given_up` with the
    # reason of the last failure.
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
    """Return a callback that passes a job's subject, id and status to ``end``."""

    def end_with_job(uow: UnitOfWork, job: Job) -> None:
        subject = uow.session.get(model, job.subject_id)
        if subject is not None:
            end(uow, subject, job.id, job.status)

    return end_with_job


def list_kinds() -> frozenset[JobKind]:
    """Return the job kinds that the loaded modules of this process registered."""
    return frozenset(_kinds.values())


def list_request_work() -> Mapping[RequestKind, RequestWork]:
    """Return the work function of each request kind that the loaded modules registered."""
    return _request_work


def find_kind(name: str) -> JobKind | None:
    """Return the job kind, or ``None`` for a name that only another release knows."""
    return _kinds.get(name)


def get_kind(name: str) -> JobKind:
    """Return the job kind. Raises ``KeyError`` for a name that no loaded module registered."""
    return _kinds[name]
