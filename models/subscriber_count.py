"""How many active subscribers a list has, without a row that every subscriber must lock.

A trigger on ``subscriptions`` writes one delta row for each statement, and upkeep folds the deltas
into one row a list. The count is that row plus the deltas that are not folded yet.
"""

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

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
