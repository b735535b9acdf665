"""Updates the subscriber counts and daily statistics of lists when the number of members changes.

Whenever the number of active members in a list changes, database triggers store the change as rows
in separate tables, such as ``subscriber_deltas``. A maintenance job regularly merges the
rows in tables such as ``subscriber_deltas`` into the subscriber counts and daily statistics, so
that queries stay fast. A query for a list's subscriber count also adds the rows that aren't merged
yet.
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
_MAX_BATCH_DELTAS = 10_000
# The array of ids makes Postgres look up rows by primary key. A join could be slow, because
# Postgres has wrong statistics about the usually empty table.
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
# The array of ids makes Postgres look up rows by primary key.
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
# The array of ids makes Postgres look up rows by primary key.
_FOLD_ORIGINS = text("""
    WITH taken AS (
        DELETE FROM origin_day_deltas WHERE id = ANY (ARRAY(
            SELECT id FROM origin_day_deltas ORDER BY id LIMIT :max_deltas FOR UPDATE SKIP LOCKED
        ))
        RETURNING list_id, day, utm_source, utm_medium, utm_campaign, referrer, joined, gone
    ), folded AS (
        INSERT INTO origin_days AS o
            (list_id, day, utm_source, utm_medium, utm_campaign, referrer, joined, gone)
        SELECT list_id, day, utm_source, utm_medium, utm_campaign, referrer, sum(joined), sum(gone)
        FROM taken GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6
        ON CONFLICT (list_id, day, utm_source, utm_medium, utm_campaign, referrer) DO UPDATE SET
            joined = o.joined + excluded.joined, gone = o.gone + excluded.gone
    )
    SELECT count(*) FROM taken
    """)


def fold_everything(resources: Resources) -> int:
    """Update the subscriber counts and daily statistics with all rows that triggers have stored.

    Each transaction merges only one batch of rows into the counts or statistics. Return how many
    rows of ``subscriber_deltas``, ``member_day_deltas`` and ``origin_day_deltas`` were merged.
    """
    total = 0
    for fold_batch in (fold_counts, fold_days, fold_origins):
        folded_count = _MAX_BATCH_DELTAS
        while folded_count == _MAX_BATCH_DELTAS:
            with resources.unit_of_work() as uow:
                folded_count = fold_batch(uow, max_deltas=_MAX_BATCH_DELTAS)
            total += folded_count
    return total


def fold_counts(uow: UnitOfWork, *, max_deltas: int) -> int:
    """Merge at most ``max_deltas`` rows of ``subscriber_deltas`` into the subscriber counts.

    Start with the oldest rows. Return how many rows of ``subscriber_deltas`` were merged.

    If an owner's lists have more members than the plan allows, people can still join, but the owner
    gets a notice. The notice about the quota is enqueued in the transaction that updates the
    subscriber counts, so that a crash can't lose the notice.
    """
    folded_count, grown_list_ids = uow.session.execute(
        _FOLD_COUNTS, {"max_deltas": max_deltas}
    ).one()
    notify_owners(uow, grown_list_ids)
    return int(folded_count)


def fold_days(uow: UnitOfWork, *, max_deltas: int) -> int:
    """Merge at most ``max_deltas`` rows of ``member_day_deltas`` into lists' daily statistics.

    Start with the oldest rows. Return how many rows of ``member_day_deltas`` were merged.
    """
    return uow.session.scalar(_FOLD_DAYS, {"max_deltas": max_deltas}) or 0


def fold_origins(uow: UnitOfWork, *, max_deltas: int) -> int:
    """Merge at most ``max_deltas`` rows of ``origin_day_deltas`` into the statistics by origin.

    Start with the oldest rows. Return how many rows of ``origin_day_deltas`` were merged.
    """
    return uow.session.scalar(_FOLD_ORIGINS, {"max_deltas": max_deltas}) or 0
