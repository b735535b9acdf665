"""Reads the number of active subscribers of each list."""

from collections.abc import Collection

from sqlalchemy import func, select

from models import COUNTS_AND_DELTAS
from storage.unit_of_work import UnitOfWork


def count_subscribers(uow: UnitOfWork, list_ids: Collection[int]) -> dict[int, int]:
    query = (
        select(COUNTS_AND_DELTAS.c.list_id, func.sum(COUNTS_AND_DELTAS.c.active))
        .where(COUNTS_AND_DELTAS.c.list_id.in_(list_ids))
        .group_by(COUNTS_AND_DELTAS.c.list_id)
    )
    counts = {list_id: int(total) for list_id, total in uow.session.execute(query)}
    return {list_id: counts.get(list_id, 0) for list_id in list_ids}
