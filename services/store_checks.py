"""Checks each minute whether the database and the object storage have space for new data."""

from datetime import timedelta
from typing import NamedTuple

from services.jobs.maintenance import register_maintenance
from storage.database import Database, Statement
from storage.database_space import MAINTENANCE_NAME, check_database_space
from storage.resources import Resources

CHECK_STORES = register_maintenance(
    MAINTENANCE_NAME,
    every=timedelta(minutes=1),
    run=lambda resources, _: check_writes(resources),
    max_run=timedelta(minutes=1),
)
_SELECT_LAST_CHECK = Statement("""
    SELECT last_error IS NOT NULL, CAST(extract(epoch FROM now() - last_started_at) AS float)
    FROM maintenance WHERE name = :name AND last_finished_at >= last_started_at
    """)


class LastCheck(NamedTuple):
    """The result of the last check by a worker, which began ``age_seconds`` ago."""

    has_failed: bool
    age_seconds: float


def check_writes(resources: Resources) -> None:
    """Write to the database and to the object storage, and record a full disk in ``FULL_DISKS``."""
    try:
        check_database_space(resources.database)
    finally:
        resources.objects.check_space()


def read_last_check(database: Database) -> LastCheck | None:
    """Return the result of the last check, or ``None`` while a check is running."""
    rows = database.rows(_SELECT_LAST_CHECK, name=CHECK_STORES.name)
    return LastCheck(*rows[0]) if rows else None
