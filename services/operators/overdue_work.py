"""Collects the overdue work of the deployment, which the operators' pages show."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from core.ids import AccountId
from services import deployment_figures
from services.deployment_figures import DeploymentFigures
from services.privacy.overdue_rows import count_overdue_rows
from services.subscriptions import list_reports, text_reviews
from services.subscriptions.list_reports import ReportedList
from services.subscriptions.text_reviews import SuspiciousText
from storage.database import Statement
from storage.resources import Resources

# Maintenance counts as late after this delay, because a worker usually starts due maintenance
# sooner.
MIN_LATE_SECONDS = 60.0
_MAX_REPORTED_LISTS = 20
_MAX_SUSPICIOUS_TEXTS = 20
_MAX_FAILING_WEBHOOKS = 20
# Failed jobs are counted only among the newest finished jobs, because the table may contain
# millions of finished jobs.
_MAX_SCANNED_JOBS = 20_000
_FAILED_JOBS = Statement("""
    SELECT count(*) FILTER (WHERE status = 'failed') FROM (
        SELECT status FROM jobs WHERE finished_at > now() - interval '1 day'
        ORDER BY finished_at DESC LIMIT :most
    ) AS newest
    """)
_FAILING_WEBHOOKS = Statement("""
    SELECT url, users.id, users.email, failing_since FROM (
        SELECT url, user_id, failing_since FROM webhook_endpoints
        WHERE state = 'active' ORDER BY id LIMIT 10000
    ) AS active JOIN users ON users.id = user_id
    WHERE failing_since IS NOT NULL ORDER BY failing_since LIMIT :most
    """)


@dataclass(frozen=True)
class QueueFigures:
    """The numbers of queued, running and due jobs in one queue.

    ``oldest_seconds`` is the time since the oldest due job became due, or 0 if no job is due.
    """

    queue: str
    queued: int
    running: int
    due: int
    oldest_seconds: float

    @property
    def is_busy(self) -> bool:
        return bool(self.queued or self.running)


@dataclass(frozen=True)
class FailingWebhook:
    url: str
    owner_id: AccountId
    owner: str
    failing_since: datetime


@dataclass(frozen=True)
class OverdueWork:
    """The work that waits for a worker or an operator, in the whole deployment.

    Attributes:
        late_maintenance: the delay in seconds of each kind of maintenance that is late.
        failing_webhooks: the webhooks that have failed for the longest time, at most 20.
        failed_jobs: the number of jobs that failed in the last day, among the newest finished jobs.
    """

    figures: DeploymentFigures
    queues: list[QueueFigures]
    rows: Mapping[str, int]
    late_maintenance: Mapping[str, float]
    reported: list[ReportedList]
    suspicious: list[SuspiciousText]
    failing_webhooks: list[FailingWebhook]
    failed_jobs: int


def read_overdue_work(resources: Resources) -> OverdueWork:
    """Return the overdue work, reading only unfinished jobs and a limited number of other rows."""
    figures = deployment_figures.read_figures(resources.database)
    overdue_rows = count_overdue_rows(resources)
    with resources.unit_of_work() as uow:
        reported = list_reports.list_reported(uow, limit=_MAX_REPORTED_LISTS)
        suspicious = text_reviews.list_suspicious(uow, limit=_MAX_SUSPICIOUS_TEXTS)
    late = sorted(figures.maintenance.late_seconds.items())
    return OverdueWork(
        figures,
        queues=list_queues(figures),
        rows={rule: count for rule, count in sorted(overdue_rows.items()) if count},
        late_maintenance={name: seconds for name, seconds in late if seconds >= MIN_LATE_SECONDS},
        reported=reported,
        suspicious=suspicious,
        failing_webhooks=[
            FailingWebhook(*row)
            for row in resources.database.rows(_FAILING_WEBHOOKS, most=_MAX_FAILING_WEBHOOKS)
        ],
        failed_jobs=resources.database.rows(_FAILED_JOBS, most=_MAX_SCANNED_JOBS)[0][0],
    )


def list_queues(figures: DeploymentFigures) -> list[QueueFigures]:
    jobs = figures.jobs
    due = Counter[str]()
    for (queue, _), count in jobs.due.items():
        due[queue] += count
    counts = Counter(jobs.unfinished)
    return [
        QueueFigures(queue, counts[queue, "queued"], counts[queue, "running"], due[queue], oldest)
        for queue, oldest in jobs.oldest.items()
    ]
