"""Lists the latest run of each kind of maintenance."""

from dataclasses import dataclass

from sqlalchemy import func, select

from models import Maintenance
from services.jobs import maintenance
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class MaintenanceRun:
    """The latest run of one kind of maintenance, such as the creation of backups.

    Attributes:
        took_seconds: the duration of the run in seconds, or ``None`` if the run hasn't finished.
    """

    row: Maintenance
    took_seconds: float | None
    is_running: bool
    is_due: bool

    @property
    def done(self) -> int | None:
        """Return the latest successful run's result, such as the number of deleted rows."""
        return (self.row.last_result or {}).get("done")


def list_maintenance(uow: UnitOfWork) -> list[MaintenanceRun]:
    """Return the latest run of each kind of maintenance.

    The function compares due times with the database's clock, because the workers use this clock
    too.
    """
    now = uow.session.scalar(select(func.now()))
    assert now is not None
    return [
        MaintenanceRun(
            row,
            run_seconds(row),
            is_running=row.lease_expires_at is not None and row.lease_expires_at > now,
            is_due=row.due_at <= now,
        )
        for row in maintenance.list_all_rows(uow)
    ]


def run_seconds(row: Maintenance) -> float | None:
    """Return how many seconds the latest run took, or ``None`` if the run hasn't finished."""
    started = row.last_started_at
    finished = row.last_finished_at
    if started is None or finished is None or finished < started:
        return None
    return round((finished - started).total_seconds(), 3)
