"""Runs purges. A purge deletes expired rows from several tables.

A purge deletes each batch of rows in a short transaction. The tables take turns, so that a large
table doesn't delay the purge of smaller tables. After an error in one table, the purge continues
with the remaining tables and reports the error at the end.
"""

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

# A purge must end before its lease expires. Expired rows that a purge doesn't reach are deleted by
# the next purge.
_MAX_RUN_SECONDS = 45 * 60.0
# If deleting a batch takes longer than ``_MAX_BATCH_SECONDS``, the next batch is smaller. The
# database cancels statements after ten seconds.
_MAX_BATCH_SECONDS = 2.0
_MIN_BATCH_ROWS = 10

# A function that deletes at most the given number of rows, and returns the number of deleted rows.
Batch = Callable[[UnitOfWork, int], int]


class TablesNotPurged(Exception):
    """A purge could not delete expired rows. The message contains each table with its error."""


@dataclass
class TablePurge:
    name: str
    batch: Batch
    rows: int
    has_more: bool = True

    def purge_batch(self, resources: Resources) -> int:
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
class PurgeRun:
    resources: Resources
    purged: int = 0
    errors: dict[str, str] = field(default_factory=dict)

    def purge_tables(self, *tables: TablePurge) -> None:
        ends_at = time.monotonic() + _MAX_RUN_SECONDS
        unfinished = list(tables)
        while unfinished and time.monotonic() < ends_at:
            for table in unfinished:
                self.attempt(table.name, partial(table.purge_batch, self.resources))
            unfinished = [
                table for table in unfinished if table.has_more and table.name not in self.errors
            ]

    def attempt(self, table: str, work: Callable[[], int]) -> None:
        try:
            self.purged += work()
        except SQLAlchemyError as error:
            log.exception("retention.failed", table=table)
            self.errors[table] = type(getattr(error, "orig", None) or error).__name__

    def end(self) -> int:
        if self.errors:
            reasons = ", ".join(f"{table} ({error})" for table, error in self.errors.items())
            raise TablesNotPurged(f"{reasons}; {self.purged} rows of other tables were deleted")
        return self.purged
