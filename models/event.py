from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import Model, SerialId


class RecordedEvent(Model):
    """A fact about one user's account. Rows are added and, after a year, purged; never changed.

    The database refuses the rest, but for one change: an erased person's rows lose their origin. A
    row holds ids; what they name is looked up when the row is read.
    """

    __tablename__ = "events"
    __table_args__ = (
        Index("ix_events_user_id_id", "user_id", text("id DESC")),
        CheckConstraint("char_length(user_agent) <= 300", name="user_agent_bounded"),
        CheckConstraint("octet_length(detail::text) <= 2000", name="detail_bounded"),
    )

    id: Mapped[SerialId]
    # No foreign key: it would make each event wait for a recovery that has locked the person, which
    # in turn may wait for the row that the event tells of.
    user_id: Mapped[int]
    # A name of `services.security_events`.
    type: Mapped[str]
    occurred_at: Mapped[datetime] = mapped_column(server_default=func.now(), index=True)
    # From where, and by which credential: a key, a session, a grant, or the operator's command.
    ip: Mapped[str | None]
    user_agent: Mapped[str | None]
    credential_kind: Mapped[str | None]
    credential_id: Mapped[int | None]
    detail: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))


class FeedEvent(Model):
    """A fact about what an owner has. Rows are added, never changed, and deleted after 30 days.

    A row holds ids, counts and our own words. Personal data is looked up when it is read, so the
    erasure of a person needs no change here.
    """

    __tablename__ = "feed_events"
    __table_args__ = (
        # Each type is looked for by itself, so that a rare one is found as fast as a common one.
        Index(None, "user_id", "type", "place", "id"),
        Index(None, "list_id", "type", "place", "id", postgresql_where="list_id IS NOT NULL"),
        CheckConstraint("octet_length(data::text) <= 2000", name="data_bounded"),
    )

    id: Mapped[SerialId]
    # The number of the transaction that wrote the row (services.feed.reading).
    place: Mapped[int] = mapped_column(server_default=text("feed_place()"))
    # The owner. No foreign keys: the row is a message, and outlives what it tells of.
    user_id: Mapped[int]
    # A name of `services.feed.catalogue`.
    type: Mapped[str]
    list_id: Mapped[int | None]
    subject_id: Mapped[int | None]
    data: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    occurred_at: Mapped[datetime] = mapped_column(server_default=func.now())


class FeedOffset(Model):
    """The number added to a transaction's number for its place: one row, raised by each restore."""

    __tablename__ = "feed_offsets"
    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    places: Mapped[int]
