"""Watched segments, their recorded members, and the members' entries and exits."""

from datetime import date, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    CheckConstraint,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    SmallInteger,
    func,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import PersonId
from models.declarative import Model, SerialId, allow_values


class PauseReason(StrEnum):
    """The reason why Pressroom doesn't compare a watched segment."""

    FIELD_RETIRED = "field_retired"
    TAG_DELETED = "tag_deleted"
    # The comparison needed too much CPU time.
    TOO_SLOW = "too_slow"
    QUOTA_FULL = "quota_full"


class MemberChange(StrEnum):
    ENTERED = "entered"
    LEFT = "left"


class SegmentWatch(Model):
    """A segment that Pressroom compares with its recorded members again and again.

    Stopping a watch deletes its row. A new watch has a new id, so that it starts without members.
    """

    __tablename__ = "segment_watches"
    __table_args__ = (
        CheckConstraint("hour BETWEEN 0 AND 23", name="hour_valid"),
        allow_values("pause_reason", PauseReason),
    )

    id: Mapped[SerialId]
    segment_id: Mapped[int] = mapped_column(
        ForeignKey("segments.id", ondelete="CASCADE"), unique=True
    )
    # The segment's list. A database trigger needs the list after the segment was deleted.
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"), index=True)
    # The IANA name of the time zone in which the segment's day begins at ``hour``.
    time_zone: Mapped[str]
    hour: Mapped[int] = mapped_column(SmallInteger)
    # True if members who enter by an import cause events.
    imports: Mapped[bool]
    pause_reason: Mapped[str | None]
    # The segment's latest day that was compared, or NULL before the first comparison.
    compared_day: Mapped[date | None]
    compared_at: Mapped[datetime | None]
    due_at: Mapped[datetime] = mapped_column(server_default=func.now(), index=True)
    # True if the next comparison causes no events, because the watch has just begun, the filter
    # has changed, or a backup was restored.
    is_silent: Mapped[bool] = mapped_column(server_default=text("true"))
    # The last comparison has seen all changes that imports made before this time.
    imports_seen_at: Mapped[datetime] = mapped_column(server_default=func.now())
    # The comparison in progress, in the format of `services.subscriptions.watches.comparing`.
    progress: Mapped[dict[str, Any] | None]
    # The number of rows in `segment_members`, and the number of these rows with ``is_in``.
    recorded: Mapped[int] = mapped_column(server_default=text("0"))
    members: Mapped[int] = mapped_column(server_default=text("0"))


class SegmentMember(Model):
    """A person who is or was in a watched segment.

    The table has no foreign keys, because a comparison can write a million rows. The types and the
    order of the columns keep a row with its index below 100 bytes.
    """

    __tablename__ = "segment_members"
    __table_args__ = (PrimaryKeyConstraint("watch_id", "subscription_id"),)

    subscription_id: Mapped[int]
    user_id: Mapped[PersonId]
    watch_id: Mapped[int] = mapped_column(Integer)
    # The days of the last events about the member.
    last_entered_on: Mapped[date | None]
    last_left_on: Mapped[date | None]
    # The number of times that the member has entered the segment.
    entry: Mapped[int] = mapped_column(SmallInteger)
    is_in: Mapped[bool]


class SegmentChange(Model):
    """A member's entry or exit, which is deleted after 30 days."""

    __tablename__ = "segment_changes"
    __table_args__ = (
        allow_values("change", MemberChange),
        Index("ix_segment_changes_watch_id_id", "watch_id", "id"),
    )

    id: Mapped[SerialId]
    watch_id: Mapped[int]
    user_id: Mapped[PersonId]
    change: Mapped[str]
    entry: Mapped[int]
    day: Mapped[date]
    at: Mapped[datetime] = mapped_column(server_default=func.now())
