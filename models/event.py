"""Events: the audit record of accounts, and the feed of events for owners and their webhooks."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import Model, SerialId


class RecordedEvent(Model):
    """An event in the history of one user's account, such as a login.

    Rows are added and deleted after a year, but never changed. The only exception is an erasure,
    which deletes the origin from the rows of the erased person. A database trigger enforces these
    rules. Readers of a row look up the names of the ids in the row.
    """

    __tablename__ = "events"
    __table_args__ = (
        Index("ix_events_user_id_id", "user_id", text("id DESC")),
        CheckConstraint("char_length(user_agent) <= 300", name="user_agent_bounded"),
        CheckConstraint("octet_length(detail::text) <= 2000", name="detail_bounded"),
    )

    id: Mapped[SerialId]
    # A foreign key would cause deadlocks. An event would wait for an account recovery, which locks
    # the user and may wait for the row that the event is about.
    user_id: Mapped[int]
    # A type of security event (`services.security_events`).
    type: Mapped[str]
    occurred_at: Mapped[datetime] = mapped_column(server_default=func.now(), index=True)
    # The origin of the action: the client's address and program, and the credential. An operator's
    # command also counts as a credential.
    ip: Mapped[str | None]
    user_agent: Mapped[str | None]
    credential_kind: Mapped[str | None]
    credential_id: Mapped[int | None]
    detail: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))


class FeedEvent(Model):
    """An event in an owner's feed, such as a new subscription.

    Rows are never changed, and deleted after 30 days. A row contains no personal data. Readers of a
    row look up personal data by the ids, so an erasure needs no change of the feed.
    """

    __tablename__ = "feed_events"
    __table_args__ = (
        # Queries search for each event type separately, so that rare types are found quickly.
        Index(None, "user_id", "type", "place", "id"),
        Index(None, "list_id", "type", "place", "id", postgresql_where="list_id IS NOT NULL"),
        CheckConstraint("octet_length(data::text) <= 2000", name="data_bounded"),
    )

    id: Mapped[SerialId]
    # The position of the row's transaction in the feed (services.feed.reading).
    place: Mapped[int] = mapped_column(server_default=text("feed_place()"))
    # The owner of the feed. The table has no foreign keys, because an event may outlive its
    # subject.
    user_id: Mapped[int]
    # A type of feed event (`services.feed.catalogue`).
    type: Mapped[str]
    list_id: Mapped[int | None]
    subject_id: Mapped[int | None]
    data: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    occurred_at: Mapped[datetime] = mapped_column(server_default=func.now())


class FeedOffset(Model):
    """The offset that is added to a transaction's number to calculate the transaction's place.

    The table has one row. Each restore of a backup raises the offset, because the
    transaction numbers of a restored database start at a lower value.
    """

    __tablename__ = "feed_offsets"
    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    places: Mapped[int]
