"""Bulk actions of owners on members, and the changes that an undo reverses."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import AccountId
from models.declarative import CreatedAt, Model, SerialId, allow_values


class BulkActionKind(StrEnum):
    TAG = "tag"
    UNTAG = "untag"
    REMOVE = "remove"
    SET_TYPE = "set_type"
    EMAIL_OFF = "email_off"


class BulkAction(Model):
    """Applies one change to all members of a list that match a filter, sorted by status and then by
    id.
    """

    __tablename__ = "bulk_actions"
    __table_args__ = (
        allow_values("action", BulkActionKind),
        allow_values("status", ("running", "succeeded", "failed", "cancelled")),
        Index("ix_bulk_actions_user_id_id", "user_id", "id"),
        Index("ix_bulk_actions_list_id", "list_id"),
        # Before a tag is deleted, this index finds the running bulk actions that use the tag.
        Index("ix_bulk_actions_running", "list_id", postgresql_where="status = 'running'"),
        Index("ix_bulk_actions_finished_at", "finished_at"),
    )

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"))
    user_id: Mapped[AccountId] = mapped_column(ForeignKey("users.id"))
    # The filter that selects the members to change, in the format of a segment's filter. A
    # segment's filter is copied, so that the owner can edit or delete the segment during the bulk
    # action.
    filter: Mapped[dict[str, Any]] = mapped_column(deferred=True)
    action: Mapped[str]
    tag_id: Mapped[int | None]
    type: Mapped[str | None]

    status: Mapped[str] = mapped_column(default="running", server_default="running")
    # The status and id of the last checked member, or NULL at the start of the bulk action.
    reached_status: Mapped[str | None]
    reached_id: Mapped[int | None]
    seen: Mapped[int] = mapped_column(default=0, server_default="0")
    matched: Mapped[int] = mapped_column(default=0, server_default="0")
    changed: Mapped[int] = mapped_column(default=0, server_default="0")

    # The job that undoes the bulk action. ``undo_job_id`` has no foreign key, because the job may
    # be deleted before the bulk action.
    undo_job_id: Mapped[int | None]
    # The id of the last member that the undo checked.
    undo_reached_id: Mapped[int | None]
    # The number of members that the undo restored.
    undone: Mapped[int] = mapped_column(default=0, server_default="0")
    undone_at: Mapped[datetime | None]
    created_at: Mapped[CreatedAt]
    finished_at: Mapped[datetime | None]


class BulkChange(Model):
    __tablename__ = "bulk_changes"
    # The erasure of a person uses this index to find bulk changes of the person's subscriptions.
    __table_args__ = (Index("ix_bulk_changes_subscription_id", "subscription_id"),)

    bulk_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    subscription_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    # The time at which the bulk action changed the member.
    applied_at: Mapped[datetime]
    updated_at_before: Mapped[datetime]
    status_before: Mapped[str]
    type_before: Mapped[str]
    paid_expiry_before: Mapped[datetime | None]
    paid_expiry_after: Mapped[datetime | None]
