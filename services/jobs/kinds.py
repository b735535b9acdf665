from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import timedelta

from core.counters import job_metrics
from core.lanes import Lane
from core.refusals.refusal import Refusal
from core.scopes import Scope
from models import Job
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class JobKind:
    """A kind of durable work, declared once by the module that does it."""

    name: str  # `resource.verb`, the task's name too
    lane: Lane
    scope: Scope  # what a credential needs to see or cancel such a job
    retryable: bool  # whether a failed one may be started again by its owner
    # Called in the transaction that fails or cancels a job, so that the job's subject ends with it.
    # None: the subject stays as it is.
    on_abandoned: Callable[[UnitOfWork, Job], None] | None = None
    # Whether a session needs a recent login to start it, to retry it and to have what it made.
    needs_recent_login: bool = False
    # An attempt that takes longer is taken for stuck. Bulk work counts each turn by itself.
    deadline_seconds: float = 60.0
    # For so long one turn after the other may be taken in one process, which keeps what they need.
    # 0: a process has nothing that the next turn needs.
    max_stay_seconds: float = 0.0
    # Called in the transaction that starts an ended job again, so that its subject is as before.
    # False: it can't be, since what the work needs is gone.
    on_restarted: Callable[[UnitOfWork, Job], bool] | None = None
    # How long it is tried while it fails for reasons that may pass. None: as the settings say.
    patience: timedelta | None = None
    # Why it failed, when that time is over. None: `job.given_up`, with the last reason.
    given_up: Refusal | None = field(default=None, hash=False)


_kinds: dict[str, JobKind] = {}


def register(kind: JobKind) -> JobKind:
    if kind.name in _kinds:
        raise ValueError(f"job kind {kind.name} is registered twice")
    _kinds[kind.name] = kind
    job_metrics.begin(kind.lane, kind.name)
    return kind


def registered() -> frozenset[JobKind]:
    """The kinds that the modules of this process have registered."""
    return frozenset(_kinds.values())


def names_without(scopes: Collection[Scope]) -> list[str]:
    """The kinds whose jobs a credential with these scopes may not see."""
    return [kind.name for kind in _kinds.values() if kind.scope not in scopes]


def find(name: str) -> JobKind | None:
    """``None`` for a kind of another release."""
    return _kinds.get(name)


def kind_named(name: str) -> JobKind:
    """Raises ``KeyError`` for a kind that no module of this process has registered."""
    return _kinds[name]
