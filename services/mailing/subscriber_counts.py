"""Numbers of active subscribers: a count for each list, and differences not yet added to it."""

from collections.abc import Collection
from datetime import timedelta

from sqlalchemy import func, select, text

from core.lanes import Lane
from models import COUNTS_AND_DELTAS
from services.jobs import upkeep
from services.mailing import member_figures, quota_notices
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

FOLD_COUNTS = upkeep.register(
    upkeep.UpkeepKind("maintenance.fold_counts", every=timedelta(seconds=30), lane=Lane.UPKEEP)
)
_MAX_FOLDED_DELTAS = 10_000


def count_subscribers(uow: UnitOfWork, list_ids: Collection[int]) -> dict[int, int]:
    """The number of active subscribers of each list."""
    query = (
        select(COUNTS_AND_DELTAS.c.list_id, func.sum(COUNTS_AND_DELTAS.c.active))
        .where(COUNTS_AND_DELTAS.c.list_id.in_(list_ids))
        .group_by(COUNTS_AND_DELTAS.c.list_id)
    )
    found = {list_id: int(total) for list_id, total in uow.session.execute(query)}
    return {list_id: found.get(list_id, 0) for list_id in list_ids}


# By an array: the table is nearly empty at most times, and a join that Postgres plans for a few
# rows reads ten thousand as often as there are any.
_FOLD = text(
    """
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
    """
)


def fold_all(resources: Resources) -> int:
    """Add all differences to their lists' counts and days, the oldest first, batch by batch.

    The owners of lists that have grown beyond a quota are told. Returns how many differences were
    added. Reading a list's count or its figures stays quick while few are left beside them.
    """
    total, folded = 0, _MAX_FOLDED_DELTAS
    while folded == _MAX_FOLDED_DELTAS:
        with resources.unit_of_work() as uow:
            folded, grown = fold_deltas(uow, max_deltas=_MAX_FOLDED_DELTAS)
            quota_notices.tell_owners(uow, resources.settings, grown)
        total += folded
    folded = _MAX_FOLDED_DELTAS
    while folded == _MAX_FOLDED_DELTAS:
        with resources.unit_of_work() as uow:
            folded = member_figures.fold(uow, max_deltas=_MAX_FOLDED_DELTAS)
        total += folded
    return total


def fold_deltas(uow: UnitOfWork, *, max_deltas: int) -> tuple[int, list[int]]:
    """Add the oldest differences to their lists' counts.

    Returns how many were added, and the lists that have more members by them.
    """
    folded, grown = uow.session.execute(_FOLD, {"max_deltas": max_deltas}).one()
    return folded, grown
