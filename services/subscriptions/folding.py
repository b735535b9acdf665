"""Folds the changes of member numbers into the counts and daily figures of lists.

A trigger on ``subscriptions`` writes the changes as differences. Reading a count or a figure adds
the differences that are left, so it stays quick only while these are few.
"""

from datetime import timedelta

from sqlalchemy import text

from services.jobs.maintenance import register_maintenance
from services.subscriptions.quota_notices import notify_owners
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

FOLD_COUNTS = register_maintenance(
    "maintenance.fold_counts",
    every=timedelta(seconds=30),
    run=lambda resources, _: fold_everything(resources),
)
_MAX_FOLDED_DELTAS = 10_000


def fold_everything(resources: Resources) -> int:
    """Fold all differences, the oldest first, in batches; returns their number."""
    total = 0
    for fold_batch in (fold_counts, fold_days):
        folded = _MAX_FOLDED_DELTAS
        while folded == _MAX_FOLDED_DELTAS:
            with resources.unit_of_work() as uow:
                folded = fold_batch(uow, max_deltas=_MAX_FOLDED_DELTAS)
            total += folded
    return total


# The array makes Postgres look up the rows by their keys. Postgres would plan a join for few rows,
# because the table is usually nearly empty. Such a join is very slow for ten thousand rows.
_FOLD_COUNTS = text("""
    WITH taken AS (
        DELETE FROM subscriber_deltas WHERE id = ANY (ARRAY(
            SELECT id FROM subscriber_deltas ORDER BY id LIMIT :max_deltas FOR UPDATE SKIP LOCKED
        ))
        RETURNING list_id, active
    ), folded AS (
        INSERT INTO subscriber_counts (list_id, active)
        SELECT list_id, sum(active) FROM taken GROUP BY list_id ORDER BY list_id
        ON CONFLICT (list_id) DO UPDATE SET active = subscriber_counts.active + excluded.active
    )
    SELECT count(*), array(SELECT list_id FROM taken GROUP BY list_id HAVING sum(active) > 0)
    FROM taken
    """)


def fold_counts(uow: UnitOfWork, *, max_deltas: int) -> int:
    """Add the oldest differences to the counts of their lists; returns their number.

    The owners of lists that have grown are notified. Readers may always join, so they can exceed
    an owner's quota of members. The same transaction writes the mail, so that no
    crash loses the mail.
    """
    folded, grown = uow.session.execute(_FOLD_COUNTS, {"max_deltas": max_deltas}).one()
    notify_owners(uow, grown)
    return int(folded)


# An array is used for the same reason as in ``_FOLD_COUNTS``.
_FOLD_DAYS = text("""
    WITH taken AS (
        DELETE FROM member_day_deltas WHERE id = ANY (ARRAY(
            SELECT id FROM member_day_deltas ORDER BY id LIMIT :max_deltas FOR UPDATE SKIP LOCKED
        ))
        RETURNING list_id, day, source, type, joined, gone, moved_in, moved_out
    ), folded AS (
        INSERT INTO member_days AS m
            (list_id, day, source, type, joined, gone, moved_in, moved_out)
        SELECT list_id, day, source, type, sum(joined), sum(gone), sum(moved_in), sum(moved_out)
        FROM taken GROUP BY list_id, day, source, type ORDER BY list_id, day, source, type
        ON CONFLICT (list_id, day, source, type) DO UPDATE SET
            joined = m.joined + excluded.joined, gone = m.gone + excluded.gone,
            moved_in = m.moved_in + excluded.moved_in, moved_out = m.moved_out + excluded.moved_out
    )
    SELECT count(*) FROM taken
    """)


def fold_days(uow: UnitOfWork, *, max_deltas: int) -> int:
    """Add the oldest differences to the figures of their day; returns their number."""
    return uow.session.scalar(_FOLD_DAYS, {"max_deltas": max_deltas}) or 0
