"""What of the whole deployment waits for somebody, or should have been done by now."""

from collections.abc import Mapping
from dataclasses import dataclass

from services import deployment_figures
from services.deployment_figures import DeploymentFigures
from services.mailing import list_reports
from services.mailing.list_reports import ReportedList
from services.retention.overdue import OverdueRows
from storage.resources import Resources

# A job or upkeep that is due for less than that is no news: the workers are at it.
MIN_LATE_SECONDS = 60.0
_MAX_REPORTED_LISTS = 20


@dataclass(frozen=True)
class LaneFigures:
    """Attributes:
    oldest_seconds: for how long the oldest of its jobs has been due; 0 where none is.
    """

    lane: str
    queued: int
    running: int
    due: int
    oldest_seconds: float


@dataclass(frozen=True)
class OverdueWork:
    """Attributes:
    rows: overdue rows by the rule of retention, of rules that have any.
    late_upkeep: for how many seconds each kind of upkeep that is late has been due.
    """

    figures: DeploymentFigures
    lanes: list[LaneFigures]
    rows: Mapping[str, int]
    late_upkeep: Mapping[str, float]
    reported: list[ReportedList]


def read(resources: Resources) -> OverdueWork:
    """Raises ``psycopg2.Error``. Reads the jobs that have not ended, and few other rows."""
    figures = deployment_figures.read(resources.database)
    counted = OverdueRows(resources.settings).count(resources.database)
    with resources.unit_of_work() as uow:
        reported = list_reports.reported_lists(uow, limit=_MAX_REPORTED_LISTS)
    late = figures.upkeep.late_seconds.items()
    return OverdueWork(
        figures,
        lanes=lanes_of(figures),
        rows={name: count for name, count in sorted(counted.items()) if count},
        late_upkeep={name: each for name, each in sorted(late) if each >= MIN_LATE_SECONDS},
        reported=reported,
    )


def lanes_of(figures: DeploymentFigures) -> list[LaneFigures]:
    jobs = figures.jobs
    due: dict[str, int] = {}
    for (lane, _), count in jobs.due.items():
        due[lane] = due.get(lane, 0) + count
    return [
        LaneFigures(
            lane,
            jobs.unfinished.get((lane, "queued"), 0),
            jobs.unfinished.get((lane, "running"), 0),
            due.get(lane, 0),
            oldest,
        )
        for lane, oldest in jobs.oldest.items()
    ]
