"""How many active subscribers a list has, without a row that every subscriber must lock.

A trigger on ``subscriptions`` writes one delta row for each statement, and upkeep folds the deltas
into one row a list. The count is that row plus the deltas that are not folded yet.
"""

from sqlalchemy import BigInteger, ColumnElement, ForeignKey, Index, cast, func, select
from sqlalchemy.orm import InstrumentedAttribute, Mapped, mapped_column

from models.declarative import Model, SerialId


class SubscriberCount(Model):
    __tablename__ = "subscriber_counts"

    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"), primary_key=True)
    active: Mapped[int]


class SubscriberDelta(Model):
    __tablename__ = "subscriber_deltas"
    __table_args__ = (
        Index("ix_subscriber_deltas_list_id", "list_id", postgresql_include=["active"]),
    )

    id: Mapped[SerialId]
    list_id: Mapped[int]
    active: Mapped[int]


# One statement sees one moment: each difference is either in the count or beside it, never both.
COUNTS_AND_DELTAS = (
    select(SubscriberCount.list_id, SubscriberCount.active)
    .union_all(select(SubscriberDelta.list_id, SubscriberDelta.active))
    .subquery()
)


def active_count(list_id: ColumnElement[int] | InstrumentedAttribute[int]) -> ColumnElement[int]:
    """The number of active subscribers of a list, as part of a statement."""
    both = COUNTS_AND_DELTAS.c
    total = cast(func.coalesce(func.sum(both.active), 0), BigInteger)
    return select(total).where(both.list_id == list_id).scalar_subquery()
