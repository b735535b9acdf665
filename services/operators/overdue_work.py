"""The work that is overdue, as operators see it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from services import deployment_figures
from services.deployment_figures import DeploymentFigures
from services.privacy.overdue_rows import count_overdue
from services.subscriptions import branding, lists
from services.subscriptions.branding import SuspiciousText
from services.subscriptions.lists import ReportedList
from storage.resources import Resources

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
