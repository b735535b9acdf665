"""Deletes the engagement of members who are no longer measured, every hour.

A list's mode may have changed. A member may have refused or left while reports were applied.
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
_READ_BATCH = text("""
SELECT list_id, user_id FROM member_engagement
WHERE (list_id, user_id) > (:list_id, :user_id)
ORDER BY list_id, user_id LIMIT :most
""")


def delete_unmeasured(resources: Resources, _: datetime) -> int:
    """Return the number of members whose engagement was deleted."""
    with resources.unit_of_work() as uow:
        answers.detach_erased_people(uow)
    deleted = 0
    last = (0, 0)
    while True:
        with resources.unit_of_work() as uow:
            values = {"list_id": last[0], "user_id": last[1], "most": _MAX_BATCH_ROWS}
            pairs = [(row.list_id, row.user_id) for row in uow.session.execute(_READ_BATCH, values)]
            unmeasured = set(pairs) - find_measured(uow, pairs)
            delete_records(uow, unmeasured)
        deleted += len(unmeasured)
        if len(pairs) < _MAX_BATCH_ROWS:
            return deleted
        last = pairs[-1]


DELETE_UNMEASURED = register_maintenance(
    "maintenance.engagement", every=timedelta(hours=1), run=delete_unmeasured
)
