"""Folds the changes of member numbers into the counts and daily figures of lists."""

from datetime import timedelta

from sqlalchemy import text

from services.jobs import maintenance
from services.subscriptions.quota_notices import notify_owners
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

FOLD_COUNTS = maintenance.register(
    "maintenance.fold_counts",
    every=timedelta(seconds=30),
    run=lambda resources, _: fold_all(resources),
)
_MAX_FOLDED_DELTAS = 10_000


def fold_all(resources: Resources) -> int:
    """Add all differences to their lists' counts and days, the oldest first, batch by batch.

    The owners of lists that have grown beyond a quota are told. Returns how many differences were
    added. Reading a list's count or its figures stays quick while few are left beside them.
    """
    total = 0
    for fold_batch in (fold_deltas, fold):
        folded = _MAX_FOLDED_DELTAS
        while folded == _MAX_FOLDED_DELTAS:
            with resources.unit_of_work() as uow:
                folded = fold_batch(uow, max_deltas=_MAX_FOLDED_DELTAS)
            total += folded
    return total


# By an array: the table is nearly empty at most times, and a join that Postgres plans for a few
# rows reads ten thousand as often as there are any.
_FOLD = text("""
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


def fold_deltas(uow: UnitOfWork, *, max_deltas: int) -> int:
    """Add the oldest differences to their lists' counts; returns how many were added.

    Readers' own acts are always done, so they alone can bring an owner over a quota. The mail that
    says so is written in the same transaction, so it is sent whatever is killed.
    """
    folded, grown = uow.session.execute(_FOLD, {"max_deltas": max_deltas}).one()
    notify_owners(uow, grown)
    return int(folded)


# By an array, as counts are folded.
_FOLD_FIGURES = text("""
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


def fold(uow: UnitOfWork, *, max_deltas: int) -> int:
    """Add the oldest differences to their days; returns how many were added."""
    return uow.session.scalar(_FOLD_FIGURES, {"max_deltas": max_deltas}) or 0
