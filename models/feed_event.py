"""The feed: facts that matter to an owner's other programs, in an order that readers can follow."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import Model, SerialId


class FeedEvent(Model):
    """One fact about what an owner has. Rows are added, and go with their partition; never changed.

    A row holds ids, counts and our own words. What is personal is looked up when it is read, so the
    erasure of a person needs no change here.
    """

    __tablename__ = "feed_events"
    __table_args__ = (
        # Each type is looked for by itself, so that a rare one is found as fast as a common one.
        Index("ix_feed_events_user_id_type_place_id", "user_id", "type", "place", "id"),
        Index(
            "ix_feed_events_list_id_type_place_id",
            "list_id",
            "type",
            "place",
            "id",
            postgresql_where="list_id IS NOT NULL",
        ),
        CheckConstraint("octet_length(data::text) <= 2000", name="data_bounded"),
        {"postgresql_partition_by": "RANGE (id)"},
    )

    id: Mapped[SerialId]
    # That of the transaction which wrote the row (services.feed.positions).
    place: Mapped[int] = mapped_column(server_default=text("feed_place()"))
    # The owner. No foreign keys: the row is a message, and outlives what it tells of.
    user_id: Mapped[int]
    # One of `services.feed.catalogue`.
    type: Mapped[str]
    list_id: Mapped[int | None]
    subject_id: Mapped[int | None]
    data: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    occurred_at: Mapped[datetime] = mapped_column(server_default=func.now())


class FeedOffset(Model):
    """What is added to a transaction's number for its place: one row, raised by each restore."""

    __tablename__ = "feed_offsets"
    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    places: Mapped[int]
