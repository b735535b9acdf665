"""Registers job kinds. The module that does a job's work registers the job's kind."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from core.counters import work_metrics
from core.errors.catalogue import ErrorType
from core.permissions import Permission
from core.queues import Queue, RequestKind
from core.scopes import Scope
from models import Job
from services.jobs.lease import Lease
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from storage.redis.request_work import RequestLease

Subject = TypeVar("Subject")
# A function that does the work of a job. If all turns of a job must run in the same process, the
# function returns a generator, which yields after every turn except the last one.
JobWork = Callable[[Resources, Lease], Generator[None, None, None] | None]
# A function that computes the result of a request.
RequestWork = Callable[[Resources, "RequestLease"], dict[str, Any]]


class JobPermissions(NamedTuple):
    """The permissions that a role needs to see a job, and to cancel or retry it."""

    see: Permission
    change: Permission


@dataclass(frozen=True)
class JobKind:
    """Inside ``run``, import the modules that only workers need. The API must not load them."""

    # The name of a job kind has the form `resource.verb`, and is also the name of the Celery task.
    name: str
    queue: Queue
    # The scope that a credential needs to see or cancel jobs of this kind.
    scope: Scope
    # Owners can restart failed jobs of a retryable kind.
    retryable: bool
    run: JobWork
    # ``None`` if only API keys can see jobs of this kind, or if nobody can.
    permissions: JobPermissions | None
    # The codes of errors that a retry can overcome. The errors of the job system are omitted.
    retryable_codes: frozenset[str] = frozenset()
    # A callback that handles the failure or cancellation of a job, for example by marking the job's
    # import as failed.
    on_abandoned: Callable[[UnitOfWork, Job], None] | None = None
    # If ``needs_recent_login`` is true, retrying a job requires a recent login.
    needs_recent_login: bool = False
    # An attempt to run a job is interrupted after this number of seconds, and tried again. Each
    # turn, and each progress that an attempt records, renews the deadline.
    deadline_seconds: float = 60.0
    # The maximum time in seconds for which a job stays in one process. For example, a job must stay
    # in its process while it keeps a file open between turns. If ``max_stay_seconds`` is 0, each
    # turn of a job can run in a different process.
    max_stay_seconds: float = 0.0
    # A callback that prepares the subject of a job, such as an import, for a restart. The callback
    # returns false if the job's input no longer exists.
    on_restarted: Callable[[UnitOfWork, Job], bool] | None = None
    # How long jobs are retried after temporary failures, or ``None`` for the deployment's default.
    patience: timedelta | None = None
    # The error that is recorded when the last retry of a job fails. The default is `job.given_up`
    # with the reason for the last failure.
    given_up: ErrorType | None = field(default=None, hash=False)


# The deadline of CPU-bound jobs. On a busy machine, computing takes many times as long as usual.
COMPUTING_DEADLINE_SECONDS = 600.0

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
    def end_with_job(uow: UnitOfWork, job: Job) -> None:
        subject = uow.session.get(model, job.subject_id)
        if subject is not None:
            end(uow, subject, job.id, job.status)

    return end_with_job


def list_kinds() -> frozenset[JobKind]:
    return frozenset(_kinds.values())


def list_request_work() -> Mapping[RequestKind, RequestWork]:
    return _request_work


def find_kind(name: str) -> JobKind | None:
    """Return ``None`` if this release doesn't know the name."""
    return _kinds.get(name)


def get_kind(name: str) -> JobKind:
    return _kinds[name]
