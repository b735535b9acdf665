"""Deletes recorded members of stopped watches and of erased people, every hour.

An erasure by release 1.1.0 doesn't delete the person's records. An erasure finds records by the
person's subscriptions, which the undo of an import may have deleted.
"""

from datetime import datetime, timedelta

from sqlalchemy import text

from services.jobs.maintenance import register_maintenance
from services.subscriptions.watches.watches import count_deleted
from storage.resources import Resources

_MAX_BATCH_ROWS = 10_000
_STOP_WATCHES = text("""
DELETE FROM segment_watches AS w USING lists AS l
WHERE l.id = w.list_id AND l.archived_at IS NOT NULL
""")
_FIND_RANGE_END = text("""
SELECT watch_id, subscription_id FROM segment_members
WHERE (watch_id, subscription_id) > (:watch_id, :subscription_id)
ORDER BY watch_id, subscription_id OFFSET :most LIMIT 1
""")
_FIND_UNUSED = text("""
SELECT r.watch_id, r.subscription_id FROM segment_members AS r
WHERE (r.watch_id, r.subscription_id) > (:watch_id, :subscription_id)
    AND (r.watch_id, r.subscription_id) <= (:last_watch_id, :last_subscription_id)
    AND NOT EXISTS (
        SELECT FROM segment_watches AS w JOIN users AS u ON u.erased_at IS NULL
        WHERE w.id = r.watch_id AND u.id = r.user_id
    )
""")
_LOCK_WATCHES = text("""
SELECT id FROM segment_watches WHERE id = ANY (:watch_ids) ORDER BY id FOR UPDATE
""")
_DELETE = text("""
DELETE FROM segment_members AS r
USING unnest(CAST(:watch_ids AS bigint[]), CAST(:subscription_ids AS bigint[]))
    AS u (watch_id, subscription_id)
WHERE r.watch_id = u.watch_id AND r.subscription_id = u.subscription_id
RETURNING r.watch_id, r.is_in
""")
_DELETE_CHANGES = text("""
DELETE FROM segment_changes WHERE id IN (
    SELECT c.id FROM segment_changes AS c
    WHERE NOT EXISTS (SELECT FROM segment_watches AS w WHERE w.id = c.watch_id) LIMIT :most
) RETURNING 1
""")
_LAST = (2**31 - 1, 2**63 - 1)


def delete_unused_records(resources: Resources, _: datetime) -> int:
    """Return the number of deleted rows."""
    with resources.unit_of_work() as uow:
        uow.session.execute(_STOP_WATCHES)
    deleted = 0
    place = (0, 0)
    while place != _LAST:
        values = {"watch_id": place[0], "subscription_id": place[1]}
        with resources.unit_of_work() as uow:
            end = uow.session.execute(_FIND_RANGE_END, {**values, "most": _MAX_BATCH_ROWS - 1})
            place = tuple(end.one_or_none() or _LAST)
            last = {"last_watch_id": place[0], "last_subscription_id": place[1]}
            unused = uow.session.execute(_FIND_UNUSED, {**values, **last}).all()
            if unused:
                # A comparison also locks a watch before its records.
                uow.session.execute(_LOCK_WATCHES, {"watch_ids": [row[0] for row in unused]})
                pairs = {
                    "watch_ids": [row[0] for row in unused],
                    "subscription_ids": [row[1] for row in unused],
                }
                rows = uow.session.execute(_DELETE, pairs).all()
                count_deleted(uow, rows)
                deleted += len(rows)
    while True:
        with resources.unit_of_work() as uow:
            changes = len(uow.session.execute(_DELETE_CHANGES, {"most": _MAX_BATCH_ROWS}).all())
        deleted += changes
        if changes < _MAX_BATCH_ROWS:
            return deleted


DELETE_UNUSED_RECORDS = register_maintenance(
    "segments.upkeep", every=timedelta(hours=1), run=delete_unused_records
)
