"""Events in the audit logs of accounts, and events in the feeds of owners."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import AccountId
from models.declarative import Model, SerialId


class RecordedEvent(Model):
    """Recorded events are deleted after a year. A database trigger rejects changes to recorded
    events.

    Only the erasure of a person may clear the origin of the person's events.
    """

    __tablename__ = "events"
    __table_args__ = (
        Index("ix_events_user_id_id", "user_id", text("id DESC")),
        CheckConstraint("char_length(user_agent) <= 300", name="user_agent_bounded"),
        CheckConstraint("octet_length(detail::text) <= 2000", name="detail_bounded"),
    )

    id: Mapped[SerialId]
    # ``user_id`` has no foreign key, because the lock that a foreign key takes on the user could
    # cause deadlocks. While an account recovery holds a lock on the user, it may be waiting for the
    # transaction that records the user's event.
    user_id: Mapped[int]
    # The type of the event, which `services.security_events` defines.
    type: Mapped[str]
    occurred_at: Mapped[datetime] = mapped_column(server_default=func.now(), index=True)
    # The origin of the event, which is the client's IP address, user agent and credential. If an
    # operator runs a command, the column ``credential_kind`` contains ``command``.
    ip: Mapped[str | None]
    user_agent: Mapped[str | None]
    credential_kind: Mapped[str | None]
    credential_id: Mapped[int | None]
    detail: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))


class FeedEvent(Model):
    """An event in an owner's feed, such as a new subscription.

    Feed events are never changed, and are deleted after 30 days. Feed events contain ids instead of
    personal data, so that an erasure doesn't have to change the feed.
    """

    __tablename__ = "feed_events"
    __table_args__ = (
        # Queries search each event type separately, so that they find rare events quickly.
        Index(None, "user_id", "type", "place", "id"),
        Index(None, "list_id", "type", "place", "id", postgresql_where="list_id IS NOT NULL"),
        CheckConstraint("octet_length(data::text) <= 2000", name="data_bounded"),
    )

    id: Mapped[SerialId]
    # The position of the event's transaction in the feed (services.feed.reading).
    place: Mapped[int] = mapped_column(server_default=text("feed_place()"))
    # The user who owns the feed. Feed events have no foreign keys, because a feed event may outlive
    # the objects to which it refers.
    user_id: Mapped[AccountId]
    # The type of the event, which `services.feed.catalogue` defines.
    type: Mapped[str]
    list_id: Mapped[int | None]
    subject_id: Mapped[int | None]
    data: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    occurred_at: Mapped[datetime] = mapped_column(server_default=func.now())


class FeedOffset(Model):
    """The difference between a transaction's position in the feed and the transaction's number.

    Restoring a backup raises the feed offset, because transaction numbers start again in a new
    database.
    """

    __tablename__ = "feed_offsets"
    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    places: Mapped[int]
