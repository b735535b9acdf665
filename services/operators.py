"""The changes that an operator makes on their pages.

Each act is an event of the operator's own account, which tells who did it, when and from where; the
other account's events tell what was done.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import func, select

from core import ids
from core.logging import get_logger
from models import Maintenance, PaymentOrder, Plan, Resolution, User
from services import deployment_figures
from services.access import api_keys, sessions
from services.access.caller import Caller
from services.accounts import accounts
from services.credits import settlement
from services.deployment_figures import DeploymentFigures
from services.jobs import maintenance
from services.jobs import records as jobs
from services.privacy.purging import count_overdue
from services.security_events import EventType, record
from services.subscriptions import branding, lists
from services.subscriptions.branding import SuspiciousText
from services.subscriptions.lists import ReportedList
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)


class OperatorAct(StrEnum):
    PLAN_CHANGED = "plan.changed"
    ORDER_CREDITED = "order.credited"
    ORDER_REFUNDED = "order.refunded"
    JOB_RETRIED = "job.retried"
    JOB_CANCELLED = "job.cancelled"
    MAINTENANCE_BEGUN = "maintenance.begun"
    TEXTS_REVIEWED = "texts.reviewed"


_RESOLVED = {
    Resolution.CREDIT: OperatorAct.ORDER_CREDITED,
    Resolution.REFUNDED: OperatorAct.ORDER_REFUNDED,
}


def change_plan(uow: UnitOfWork, operator: Caller, user_id: int, plan: Plan) -> bool:
    """Return whether the plan was another one before. Raises ``user.not_found``."""
    user = accounts.get(uow, user_id)
    is_changed = accounts.change_plan(uow, user, plan)
    if is_changed:
        _record(uow, operator, OperatorAct.PLAN_CHANGED, user_id=user.id, plan=plan)
    return is_changed


def resolve_order(
    uow: UnitOfWork, operator: Caller, order_id: int, resolution: Resolution
) -> PaymentOrder:
    """Raises ``order.not_found`` and ``order.not_in_review``."""
    order = settlement.resolve_order(uow, order_id, resolution)
    _record(uow, operator, _RESOLVED[resolution], order_id=order_id)
    return order


def retry_job(uow: UnitOfWork, operator: Caller, job_id: int) -> None:
    """Raises ``job.not_found`` and ``job.not_retryable``."""
    job = jobs.get_any_job(uow, job_id, lock=True)
    jobs.retry_locked_job(uow, job)
    _record(uow, operator, OperatorAct.JOB_RETRIED, job_id=job_id)


def cancel_job(uow: UnitOfWork, operator: Caller, job_id: int) -> int:
    """1, or 0 when the job had ended. Raises ``job.not_found``."""
    cancelled = jobs.cancel_locked_job(uow, jobs.get_any_job(uow, job_id, lock=True))
    if cancelled:
        _record(uow, operator, OperatorAct.JOB_CANCELLED, job_id=job_id)
    return cancelled


def begin_maintenance(uow: UnitOfWork, operator: Caller, name: str) -> None:
    """Raises ``maintenance.not_found`` and ``maintenance.running``."""
    maintenance.request_run(uow, name)
    _record(uow, operator, OperatorAct.MAINTENANCE_BEGUN, maintenance=name)


def review_texts(
    uow: UnitOfWork, operator: Caller, kind: branding.Kind, record_id: int, version: str
) -> bool:
    """Return whether the texts are still those that the operator looked at."""
    is_reviewed = branding.mark_reviewed(uow, kind, record_id, version)
    if is_reviewed:
        _record(uow, operator, OperatorAct.TEXTS_REVIEWED, kind=kind, id=record_id)
    return is_reviewed


def _record(uow: UnitOfWork, operator: Caller, act: OperatorAct, /, **subject: int | str) -> None:
    acted, by = EventType.OPERATOR_ACTED, operator.credential
    record(uow, operator.user_id, acted, credential=by, act=act, **subject)
    told = {"operator_id": operator.user_id, "act": act, **subject}
    uow.after_commit(lambda: log.info("operator.acted", **told))


# A job or maintenance that is due for less than that is no news: the workers are at it.
MIN_LATE_SECONDS = 60.0
_MAX_REPORTED_LISTS = 20
_MAX_SUSPICIOUS_TEXTS = 20


@dataclass(frozen=True)
class QueueFigures:
    """Attributes:
    oldest_seconds: for how long the oldest of its jobs has been due; 0 where none is.
    """

    queue: str
    queued: int
    running: int
    due: int
    oldest_seconds: float


@dataclass(frozen=True)
class OverdueWork:
    """Attributes:
    rows: overdue rows by the rule of retention, of rules that have any.
    late_maintenance: for how many seconds each kind of maintenance that is late has been due.
    """

    figures: DeploymentFigures
    queues: list[QueueFigures]
    rows: Mapping[str, int]
    late_maintenance: Mapping[str, float]
    reported: list[ReportedList]
    suspicious: list[SuspiciousText]


def read(resources: Resources) -> OverdueWork:
    """Raises ``psycopg2.Error``. Reads the jobs that have not ended, and few other rows."""
    figures = deployment_figures.read(resources.database)
    counted = count_overdue(resources)
    with resources.unit_of_work() as uow:
        reported = lists.reported_lists(uow, limit=_MAX_REPORTED_LISTS)
        suspicious = branding.found(uow, limit=_MAX_SUSPICIOUS_TEXTS)
    late = figures.maintenance.late_seconds.items()
    return OverdueWork(
        figures,
        queues=queues_of(figures),
        rows={name: count for name, count in sorted(counted.items()) if count},
        late_maintenance={name: each for name, each in sorted(late) if each >= MIN_LATE_SECONDS},
        reported=reported,
        suspicious=suspicious,
    )


def queues_of(figures: DeploymentFigures) -> list[QueueFigures]:
    jobs = figures.jobs
    due = Counter[str]()
    for (queue, _), count in jobs.due.items():
        due[queue] += count
    counts = Counter(jobs.unfinished)
    return [
        QueueFigures(queue, counts[queue, "queued"], counts[queue, "running"], due[queue], oldest)
        for queue, oldest in jobs.oldest.items()
    ]


@dataclass(frozen=True)
class ShownMaintenance:
    """Attributes:
    took_seconds: of the last run that has ended.
    """

    row: Maintenance
    took_seconds: float | None
    is_running: bool
    is_due: bool

    @property
    def done(self) -> int | None:
        """How much the last run did that ended well."""
        return (self.row.last_result or {}).get("done")


def all_of_them(uow: UnitOfWork) -> list[ShownMaintenance]:
    """By the database's clock, as the workers see it."""
    now = uow.session.scalar(select(func.now()))
    assert now is not None
    return [
        ShownMaintenance(
            row,
            last_seconds(row),
            is_running=row.lease_expires_at is not None and row.lease_expires_at > now,
            is_due=row.due_at <= now,
        )
        for row in maintenance.list_all_rows(uow)
    ]


def last_seconds(row: Maintenance) -> float | None:
    """Return how long the last run took; ``None`` while one is under way."""
    started, finished = row.last_started_at, row.last_finished_at
    if started is None or finished is None or finished < started:
        return None
    return round((finished - started).total_seconds(), 3)


_MAX_DIGITS = len(str(ids.MAX_ID))


@dataclass(frozen=True)
class UserAccount:
    """``lists``: the slugs of those that are not archived."""

    user: User
    has_password: bool
    has_second_factor: bool
    lists: list[str]
    live_keys: int


def named(uow: UnitOfWork, name: str) -> User:
    """By an id or an address; raises ``user.not_found`` and ``email.invalid``."""
    if not (name.isascii() and name.isdigit()):
        return accounts.get_by_email(uow, name)
    # A number above all ids is no user's.
    return accounts.get(uow, min(int(name), ids.MAX_ID) if len(name) <= _MAX_DIGITS else 0)


def account_of(uow: UnitOfWork, user: User) -> UserAccount:
    return UserAccount(
        user,
        has_password=user.password_hash is not None,
        has_second_factor=sessions.is_asked(uow, user.id),
        lists=[each.slug for each in lists.choices(uow, user.id)],
        live_keys=len(api_keys.live_of(uow, user.id)),
    )
