"""Deletes the rows whose retention time is over, every hour."""

from datetime import timedelta
from functools import partial

from sqlalchemy import (
    text,
)

from models import (
    FeedEvent,
    RecordedEvent,
)
from services.jobs import maintenance
from services.privacy.kept import RULES, Rule, past
from services.privacy.purge_runs import Purge, TablePurge
from storage.purge import purge as purge_rows
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

PURGE = maintenance.register(
    "maintenance.purge",
    every=timedelta(hours=1),
    run=lambda resources, _: purge_outlived(resources),
)
_MAX_BATCH_ROWS = 10_000
# The role of our processes may delete no event. These functions of the owner's delete old ones.
_BY_THE_OWNER = {
    RecordedEvent: text("SELECT purge_events(:most, :days)"),
    FeedEvent: text("SELECT purge_feed_events(:most, :days)"),
}


def purge_outlived(resources: Resources) -> int:
    """Delete what is past its time; how many rows they were. Raises ``TablesNotPurged``."""
    purge = Purge(resources)
    batches = {
        rule.name: partial(_delete_past, rule, rule.age(resources.settings))
        for rule in RULES
        if rule.is_purged
    }
    purge.work_off(*(TablePurge(name, each, _MAX_BATCH_ROWS) for name, each in batches.items()))
    return purge.end()


def _delete_past(rule: Rule, age: timedelta, uow: UnitOfWork, limit: int) -> int:
    if rule.model in _BY_THE_OWNER:
        values = {"most": limit, "days": age.days}
        return int(uow.session.scalars(_BY_THE_OWNER[rule.model], values).one())
    places, conditions = past(rule, age, limit=limit)
    return purge_rows(uow, rule.model, places, *conditions)
