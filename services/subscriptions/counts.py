from collections.abc import Collection

from sqlalchemy import func, select, text

from models import SubscriberCount, SubscriberDelta
from storage.unit_of_work import UnitOfWork


def of_lists(uow: UnitOfWork, list_ids: Collection[int]) -> dict[int, int]:
    """How many active subscribers each list has."""
    # One statement sees one moment: a difference is in the number or not yet, never in both.
    parts = select(SubscriberCount.list_id, SubscriberCount.active).union_all(
        select(SubscriberDelta.list_id, SubscriberDelta.active)
    )
    both = parts.subquery()
    query = (
        select(both.c.list_id, func.sum(both.c.active))
        .where(both.c.list_id.in_(list_ids))
        .group_by(both.c.list_id)
    )
    found = {list_id: int(total) for list_id, total in uow.session.execute(query)}
    return {list_id: found.get(list_id, 0) for list_id in list_ids}


_FOLD = text(
    """
    WITH oldest AS (
        SELECT id FROM subscriber_deltas ORDER BY id LIMIT :most FOR UPDATE SKIP LOCKED
    ), taken AS (
        DELETE FROM subscriber_deltas USING oldest
        WHERE subscriber_deltas.id = oldest.id
        RETURNING list_id, active
    ), folded AS (
        INSERT INTO subscriber_counts (list_id, active)
        SELECT list_id, sum(active) FROM taken GROUP BY list_id ORDER BY list_id
        ON CONFLICT (list_id) DO UPDATE SET active = subscriber_counts.active + excluded.active
    )
    SELECT count(*) FROM taken
    """
)


def fold(uow: UnitOfWork, *, most: int) -> int:
    """Add the oldest differences to their lists' numbers; returns how many there were."""
    return uow.session.scalar(_FOLD, {"most": most}) or 0
