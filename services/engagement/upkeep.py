"""Deletes the engagement of members who are no longer measured.

The mode of a list may have changed. A member may have refused or left while reports were applied.
Release 1.1.0 doesn't detach the answers of people when it erases them.
"""

from datetime import datetime, timedelta

from sqlalchemy import text

from services.engagement import answers
from services.engagement.measuring import find_measured
from services.engagement.records import delete_records
from services.jobs.maintenance import register_maintenance
from storage.resources import Resources

_MAX_BATCH_ROWS = 5_000
# Changed lists are checked in each hour. Each other list is checked in one hour of the day.
_FIND_LISTS = text("""
SELECT id FROM lists WHERE id % 24 = :hour OR updated_at > :since ORDER BY id
""")
_READ_BATCH = text("""
SELECT user_id FROM member_engagement
WHERE list_id = :list_id AND user_id > :after ORDER BY user_id LIMIT :most
""")


def delete_unmeasured(resources: Resources, now: datetime) -> int:
    """Return the number of members whose engagement was deleted."""
    with resources.unit_of_work() as uow:
        answers.detach_erased_people(uow)
        # A run may start late, so go back two hours.
        values = {"hour": now.hour, "since": now - timedelta(hours=2)}
        list_ids = uow.session.scalars(_FIND_LISTS, values).all()
    return sum(_delete_unmeasured_members(resources, list_id) for list_id in list_ids)


DELETE_UNMEASURED = register_maintenance(
    "maintenance.engagement", every=timedelta(hours=1), run=delete_unmeasured
)


def _delete_unmeasured_members(resources: Resources, list_id: int) -> int:
    deleted = after = 0
    while True:
        with resources.unit_of_work() as uow:
            values = {"list_id": list_id, "after": after, "most": _MAX_BATCH_ROWS}
            user_ids = uow.session.scalars(_READ_BATCH, values).all()
            pairs = {(list_id, user_id) for user_id in user_ids}
            unmeasured = pairs - find_measured(uow, pairs)
            delete_records(uow, unmeasured)
        deleted += len(unmeasured)
        if len(user_ids) < _MAX_BATCH_ROWS:
            return deleted
        after = user_ids[-1]
