"""Counts active subscribers and daily changes, without locking a counter row for each change.

A database trigger writes a delta row for each statement that changes subscriptions. Maintenance
adds the values of delta rows to their list's count row, and then deletes the delta rows. The number
of subscribers of a list is the sum of its count row and its delta rows.
"""

from datetime import date

from sqlalchemy import BigInteger, ColumnElement, ForeignKey, Index, cast, func, select
from sqlalchemy.orm import InstrumentedAttribute, Mapped, mapped_column

from models.declarative import Model, SerialId

_DAY_COLUMNS = ("list_id", "day", "source", "type", "joined", "gone", "moved_in", "moved_out")


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


class MemberDay(Model):
    """How many members with the same source and tier joined and left a list on one day (UTC).

    To include the latest changes, queries must also sum the rows of ``member_day_deltas``.
    """

    __tablename__ = "member_days"

    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"), primary_key=True)
    day: Mapped[date] = mapped_column(primary_key=True)
    # The source and the tier of the counted members when they joined, left or changed tier.
    source: Mapped[str] = mapped_column(primary_key=True)
    type: Mapped[str] = mapped_column(primary_key=True)
    # The number of people who became active members on the day.
    joined: Mapped[int]
    # The number of people who stopped being active members on the day.
    gone: Mapped[int]
    # The number of active members who changed to the tier `type` from a different tier.
    moved_in: Mapped[int]
    # The number of active members who changed from the tier `type` to a different tier.
    moved_out: Mapped[int]


class MemberDayDelta(Model):
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


# Read counts and deltas in a single statement, because two statements could count a change twice or
# not at all.
COUNTS_AND_DELTAS = (
    select(SubscriberCount.list_id, SubscriberCount.active)
    .union_all(select(SubscriberDelta.list_id, SubscriberDelta.active))
    .subquery()
)
DAYS_AND_DELTAS = (
    select(*(getattr(MemberDay, name) for name in _DAY_COLUMNS))
    .union_all(select(*(getattr(MemberDayDelta, name) for name in _DAY_COLUMNS)))
    .subquery()
)


def active_count(list_id: ColumnElement[int] | InstrumentedAttribute[int]) -> ColumnElement[int]:
    columns = COUNTS_AND_DELTAS.c
    total = cast(func.coalesce(func.sum(columns.active), 0), BigInteger)
    return select(total).where(columns.list_id == list_id).scalar_subquery()
