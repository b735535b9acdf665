"""The purge: each hour what is past its time is deleted, in short transactions of one table each.

The tables take turns, so that a large one keeps none of the others waiting. One that fails stops no
other: the purge goes on without it, and then says so.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

import psycopg2.errors
from sqlalchemy import text
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from core.lanes import Lane
from core.logging import get_logger
from core.settings import Settings
from models import RecordedEvent
from services.jobs import upkeep
from services.retention.kept import RULES
from services.retention.retention_rules import Rule, past
from storage import purge as batches
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

PURGE = upkeep.register(
    upkeep.UpkeepKind("maintenance.purge", every=timedelta(hours=1), lane=Lane.UPKEEP)
)
# A run that would take longer leaves the rest to the next one, well before it loses its lease.
_MAX_RUN_SECONDS = 45 * 60.0
# A batch that takes longer makes the next one smaller: the database ends it after ten seconds.
_MAX_BATCH_SECONDS = 2.0
_MIN_BATCH_ROWS = 10

# Deletes some rows, as many as it is told at most, and returns their number.
Batch = Callable[[UnitOfWork, int], int]

# The role of our processes may delete no event. This function of the owner's deletes old ones.
_PURGE_EVENTS = text("SELECT purge_events(:most, :days)")


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
    """One run, and what came of it."""

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
        """How many rows were purged; raises ``TablesNotPurged``."""
        if self.failed:
            why = ", ".join(f"{name} ({reason})" for name, reason in self.failed.items())
            raise TablesNotPurged(f"{why}; {self.purged} rows of others were purged")
        return self.purged


def purge_outlived(resources: Resources) -> int:
    """Delete what is past its time; how many rows they were. Raises ``TablesNotPurged``."""
    purge = Purge(resources)
    settings = resources.settings
    purge.work_off(
        *(
            TablePurge(rule.name, _batch_of(rule, settings), rule.max_batch_rows)
            for rule in RULES
            if rule.is_purged
        )
    )
    return purge.end()


def _batch_of(rule: Rule, settings: Settings) -> Batch:
    age = rule.age(settings)

    def delete_past(uow: UnitOfWork, limit: int) -> int:
        rows = past(rule, age, limit=limit)
        return batches.purge(uow, rule.model, rows.places, *rows.conditions)

    def delete_events(uow: UnitOfWork, limit: int) -> int:
        purged = uow.session.scalars(_PURGE_EVENTS, {"most": limit, "days": age.days})
        return int(purged.one())

    return delete_events if rule.model is RecordedEvent else delete_past
