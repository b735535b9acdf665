"""Tables of which old rows are dropped by the partition, and how long those are kept at least.

The functions that make, turn and drop partitions are the owner's of the tables: the application may
not change a table. They refuse what is inside its time.
"""

import time
from datetime import timedelta

import psycopg2.errors
from sqlalchemy import func, select
from sqlalchemy.exc import OperationalError

import models
from core.lanes import Lane
from core.logging import get_logger
from core.settings import Settings
from core.settings.notations import Retained
from services.feed.reading import FEED_RETENTION
from services.jobs import upkeep
from services.subscriptions.bulk_actions.actions import BULK_UNDO_TIME
from storage.resources import Resources

log = get_logger(__name__)

KEEP_PARTITIONS = upkeep.register(
    upkeep.UpkeepKind(
        "maintenance.partitions",
        every=timedelta(hours=1),
        lane=Lane.UPKEEP,
        run=lambda resources, _: keep(resources),
    )
)
# An undo that began on the last day has a week.
UNDO_LASTS = timedelta(days=7)
# A job that failed may be started again within a week, and is tried for some days.
OTHERS_END_WITHIN = timedelta(days=14)
# After which time ids are those of the next partition, as the functions have it.
TURNS = {
    "jobs": timedelta(days=15),
    "subscription_events": timedelta(days=180),
    "import_changes": timedelta(days=30),
    "feed_events": timedelta(days=10),
    "bulk_changes": timedelta(days=30),
}
# A function gives up after 0.2 seconds, so that callers don't wait behind it.
_TRIES = 10
_PAUSE_SECONDS = 0.5


def kept_times(settings: Settings) -> dict[str, timedelta]:
    """How long each table's rows are kept: of a job and of what an act changed, since the end."""
    days = {kept: timedelta(days=number) for kept, number in settings.retention.items()}
    return {
        models.Job.__tablename__: days[Retained.JOBS],
        models.SubscriptionEvent.__tablename__: days[Retained.SUBSCRIPTION_EVENTS],
        models.ImportChange.__tablename__: days[Retained.IMPORT_CHANGES] + UNDO_LASTS,
        models.FeedEvent.__tablename__: FEED_RETENTION,
        models.BulkChange.__tablename__: BULK_UNDO_TIME + UNDO_LASTS,
    }


def keep(resources: Resources) -> int:
    """Make and turn the partitions that are due, and drop those that outlived their time.

    Returns how many partitions came or went. Raises what the last table raised that failed.
    """
    done, failure = 0, None
    for table, kept in kept_times(resources.settings).items():
        try:
            done += _keep(resources, table, kept)
        except OperationalError as error:
            log.warning("partitions.failed", table=table, reason=str(error.orig).strip())
            failure = error
    if failure is not None:
        raise failure
    return done


def _keep(resources: Resources, table: str, kept: timedelta) -> int:
    made = _call(resources, "make_partition", table)
    # For a partition that was committed.
    _call(resources, "turn_partition", table)
    dropped = 0
    while _call(resources, "drop_partition", table, kept):
        dropped += 1
    with resources.unit_of_work() as uow:
        is_old = models.Partition.closed_at < func.now() - kept
        query = select(models.Partition.name).where(models.Partition.parent == table, is_old)
        outstaying = list(uow.session.scalars(query))
    if outstaying:
        # A job in it has not ended, or has ended lately; or an import, or a bulk act.
        log.info("partitions.still_used", names=outstaying)
    return bool(made) + dropped


def _call(resources: Resources, function: str, *values: object) -> str | None:
    """The name of the partition that was made, turned to or dropped.

    Raises ``OperationalError`` when the table is too busy for long.
    """
    for left in reversed(range(_TRIES)):
        try:
            with resources.unit_of_work() as uow:
                called: str | None = uow.session.scalar(select(getattr(func, function)(*values)))
                break
        except OperationalError as error:
            if not left or not isinstance(error.orig, _NOT_NOW):
                raise
            time.sleep(_PAUSE_SECONDS)
    if called:
        log.info("partitions.changed", by=function, name=called)
    return called


_NOT_NOW = (psycopg2.errors.LockNotAvailable, psycopg2.errors.DeadlockDetected)
