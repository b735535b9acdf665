"""Lists the latest run of each kind of maintenance."""

from dataclasses import dataclass

from sqlalchemy import func, select

from models import Maintenance
from services.jobs import maintenance
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class MaintenanceRun:
    row: Maintenance
    took_seconds: float | None
    is_running: bool
    is_due: bool

    @property
    def done(self) -> int | None:
        return (self.row.last_result or {}).get("done")


def list_maintenance(uow: UnitOfWork) -> list[MaintenanceRun]:
    """Return the latest run of each kind of maintenance, failed runs first.

    Due times are compared with the database's clock, because the workers use this clock too.
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
        for row in sorted(maintenance.list_all_rows(uow), key=lambda row: row.last_error is None)
    ]


def run_seconds(row: Maintenance) -> float | None:
    started = row.last_started_at
    finished = row.last_finished_at
    if started is None or finished is None or finished < started:
        return None
    return round((finished - started).total_seconds(), 3)
