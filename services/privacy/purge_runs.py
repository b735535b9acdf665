"""A run of a purge: it purges several tables in turns, in one transaction per batch."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import psycopg2.errors
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from core.logging import get_logger
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)
# A run that would take longer leaves the rest to the next one, well before it loses its lease.
_MAX_RUN_SECONDS = 45 * 60.0
# A batch that takes longer makes the next one smaller: the database ends it after ten seconds. Most
# take a fraction of a second.
_MAX_BATCH_SECONDS = 2.0
_MIN_BATCH_ROWS = 10
# Deletes some rows, as many as it is told at most, and returns their number.
Batch = Callable[[UnitOfWork, int], int]


class TablesNotPurged(Exception):
    """Some tables could not be purged, and why; all others were."""


@dataclass
class TablePurge:
    """The purge of one table, batch by batch."""

    name: str
    batch: Batch
    rows: int
    has_more: bool = True

    def go_on(self, resources: Resources) -> int:
        """Purge one batch; returns its number of rows. Raises ``SQLAlchemyError``."""
        begun_at = time.monotonic()
        try:
            with resources.unit_of_work() as uow:
                purged = self.batch(uow, self.rows)
        except OperationalError as error:
            is_slow = isinstance(error.orig, psycopg2.errors.QueryCanceled)
            if not is_slow or self.rows <= _MIN_BATCH_ROWS:
                raise
            self.rows = max(self.rows // 10, _MIN_BATCH_ROWS)
            return 0
        self.has_more = purged >= self.rows
        if time.monotonic() - begun_at > _MAX_BATCH_SECONDS:
            self.rows = max(self.rows // 2, _MIN_BATCH_ROWS)
        return purged


@dataclass
class Purge:
    """A run of the purge, and what came of it."""

    resources: Resources
    purged: int = 0
    failed: dict[str, str] = field(default_factory=dict)

    def work_off(self, *tables: TablePurge) -> None:
        """Purge the tables in turns, until nothing is left or the time is over."""
        ends_at = time.monotonic() + _MAX_RUN_SECONDS
        waiting = list(tables)
        while waiting and time.monotonic() < ends_at:
            for table in waiting:
                self.attempt(table.name, partial(table.go_on, self.resources))
            waiting = [each for each in waiting if each.has_more and each.name not in self.failed]

    def attempt(self, name: str, work: Callable[[], int]) -> None:
        """Do the work and count its rows, or note why it failed."""
        try:
            self.purged += work()
        except SQLAlchemyError as error:
            log.exception("retention.failed", table=name)
            self.failed[name] = type(getattr(error, "orig", None) or error).__name__

    def end(self) -> int:
        """Return how many rows were purged; raises ``TablesNotPurged``."""
        if self.failed:
            why = ", ".join(f"{name} ({reason})" for name, reason in self.failed.items())
            raise TablesNotPurged(f"{why}; {self.purged} rows of others were purged")
        return self.purged
