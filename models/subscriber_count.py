"""How many active subscribers a list has, without a row that every subscriber must lock.

A trigger on ``subscriptions`` writes one delta row for each statement, and maintenance folds the
deltas into one row a list. The count is that row plus the deltas that are not folded yet.
"""

from datetime import date

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


# A statement sees one moment: each difference is either in the count or beside it, never both.
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


class MemberDay(Model):
    """How many members of one list, source and tier joined and left on one day (UTC).

    Some changes are still in ``MemberDayDelta``, so a statement that reads the table
    ``member_days`` must also read ``member_day_deltas``.
    """

    __tablename__ = "member_days"

    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"), primary_key=True)
    day: Mapped[date] = mapped_column(primary_key=True)
    # The member's source and tier at that moment.
    source: Mapped[str] = mapped_column(primary_key=True)
    type: Mapped[str] = mapped_column(primary_key=True)
    # The number of people who became active, and of those who ceased to be.
    joined: Mapped[int]
    gone: Mapped[int]
    # Active members who came to this tier from another one, and who went to another one.
    moved_in: Mapped[int]
    moved_out: Mapped[int]


class MemberDayDelta(Model):
    """A change that maintenance has not added to the row of ``MemberDay`` yet.

    The database trigger on ``subscriptions`` that counts subscribers writes the rows of this table.
    """

    __tablename__ = "member_day_deltas"
    __table_args__ = (Index("ix_member_day_deltas_list_id", "list_id"),)

    id: Mapped[SerialId]
    list_id: Mapped[int]
    day: Mapped[date]
    source: Mapped[str]
    type: Mapped[str]
    joined: Mapped[int]
    gone: Mapped[int]
    moved_in: Mapped[int]
    moved_out: Mapped[int]


_NAMES = ("list_id", "day", "source", "type", "joined", "gone", "moved_in", "moved_out")
# A statement sees one moment: each change is either in its day's row or beside it, never both.
DAYS_AND_DELTAS = (
    select(*(getattr(MemberDay, name) for name in _NAMES))
    .union_all(select(*(getattr(MemberDayDelta, name) for name in _NAMES)))
    .subquery()
)
