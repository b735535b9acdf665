"""Deletes database rows whose retention period has ended. The deletion runs every hour."""

from datetime import timedelta
from functools import partial

from sqlalchemy import text

from models import FeedEvent, RecordedEvent
from services.jobs.maintenance import register_maintenance
from services.privacy.purge_runs import PurgeRun, TablePurge
from services.privacy.retention import RULES, Rule, select_expired
from storage.purge import delete_rows
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

PURGE = register_maintenance(
    "maintenance.purge",
    every=timedelta(hours=1),
    run=lambda resources, _: purge_expired_rows(resources),
)
_MAX_BATCH_ROWS = 10_000
# Maps each table of events to the database function that deletes expired events. Pressroom's
# database role isn't allowed to delete events directly.
_PURGE_FUNCTIONS = {
    RecordedEvent: text("SELECT purge_events(:most, :days)"),
    FeedEvent: text("SELECT purge_feed_events(:most, :days)"),
}


def purge_expired_rows(resources: Resources) -> int:
    purge = PurgeRun(resources)
    tables = [
        TablePurge(
            rule.name,
            partial(_delete_expired, rule, rule.age(resources.settings)),
            _MAX_BATCH_ROWS,
        )
        for rule in RULES
        if rule.is_purged
    ]
    purge.purge_tables(*tables)
    return purge.end()


def _delete_expired(rule: Rule, age: timedelta, uow: UnitOfWork, limit: int) -> int:
    if rule.model in _PURGE_FUNCTIONS:
        values = {"most": limit, "days": age.days}
        return int(uow.session.scalars(_PURGE_FUNCTIONS[rule.model], values).one())
    places, conditions = select_expired(rule, age, limit=limit)
    return delete_rows(uow, rule.model, places, *conditions)
