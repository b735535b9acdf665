"""The last run of each kind of maintenance."""

from dataclasses import dataclass

from sqlalchemy import func, select

from models import Maintenance
from services.jobs import maintenance
from storage.unit_of_work import UnitOfWork


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
        for row in maintenance.all_records(uow)
    ]


def last_seconds(row: Maintenance) -> float | None:
    """Return how long the last run took; ``None`` while one is under way."""
    started, finished = row.last_started_at, row.last_finished_at
    if started is None or finished is None or finished < started:
        return None
    return round((finished - started).total_seconds(), 3)
