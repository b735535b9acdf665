"""How many members joined and left a list on each day, as ``SubscriberCount`` counts all of them.

The trigger on ``subscriptions`` that counts subscribers writes these rows too, and upkeep adds them
to those of their day. What is stored and what is not added yet are read by one statement.
"""

from datetime import date

from sqlalchemy import ForeignKey, Index, select
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import Model, SerialId


class MemberDay(Model):
    """The members of one list, source and tier who came and went on one day (UTC)."""

    __tablename__ = "member_days"

    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"), primary_key=True)
    day: Mapped[date] = mapped_column(primary_key=True)
    # The member's source and tier at that moment.
    source: Mapped[str] = mapped_column(primary_key=True)
    type: Mapped[str] = mapped_column(primary_key=True)
    # Who became active, and who was active and is not any more.
    joined: Mapped[int]
    gone: Mapped[int]
    # Active members who came to this tier from another one, and who went to another one.
    moved_in: Mapped[int]
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


_NAMES = ("list_id", "day", "source", "type", "joined", "gone", "moved_in", "moved_out")
# One statement sees one moment: each change is either in its day's row or beside it, never both.
DAYS_AND_DELTAS = (
    select(*(getattr(MemberDay, name) for name in _NAMES))
    .union_all(select(*(getattr(MemberDayDelta, name) for name in _NAMES)))
    .subquery()
)
