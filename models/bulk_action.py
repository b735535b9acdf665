from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId, known


class BulkActionKind(StrEnum):
    TAG = "tag"
    UNTAG = "untag"
    REMOVE = "remove"
    SET_TYPE = "set_type"
    EMAIL_OFF = "email_off"


class BulkAction(Model):
    """A bulk action of an owner on all members of a list that fit a filter: its progress and
    counts.

    Members are looked at in the order of their ids, status by status.
    """

    __tablename__ = "bulk_actions"
    __table_args__ = (
        known("action", BulkActionKind),
        known("status", ("running", "succeeded", "failed", "cancelled")),
        Index("ix_bulk_actions_user_id_id", "user_id", "id"),
        Index("ix_bulk_actions_list_id", "list_id"),
        Index("ix_bulk_actions_finished_at", "finished_at"),
    )

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"))
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    # As it was when the owner asked: a segment may change, or be deleted. Stored as those are.
    filter: Mapped[dict[str, Any]] = mapped_column(deferred=True)
    action: Mapped[str]
    tag_id: Mapped[int | None]
    type: Mapped[str | None]

    status: Mapped[str] = mapped_column(default="running", server_default="running")
    # The last member that was looked at, and among members of which status. NULL: none.
    reached_status: Mapped[str | None]
    reached_id: Mapped[int | None]
    seen: Mapped[int] = mapped_column(default=0, server_default="0")
    matched: Mapped[int] = mapped_column(default=0, server_default="0")
    changed: Mapped[int] = mapped_column(default=0, server_default="0")

    # The undo: its job, which may be past its time, the last member that it looked at, its counts.
    undo_job_id: Mapped[int | None]
    undo_reached_id: Mapped[int | None]
    undone: Mapped[int] = mapped_column(default=0, server_default="0")
    undone_at: Mapped[datetime | None]
    created_at: Mapped[CreatedAt]
    finished_at: Mapped[datetime | None]


class BulkChange(Model):
    """A member whom a bulk action changed, with the values before."""

    __tablename__ = "bulk_changes"
    # Found by the erasure of a person.
    __table_args__ = (Index("ix_bulk_changes_subscription_id", "subscription_id"),)

    bulk_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    subscription_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    # The member's event has the same id.
    applied_at: Mapped[datetime]
    updated_at_before: Mapped[datetime]
    status_before: Mapped[str]
    type_before: Mapped[str]
    paid_expiry_before: Mapped[datetime | None]
    paid_expiry_after: Mapped[datetime | None]
