from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId, UpdatedAt, known


class SubscriptionStatus(StrEnum):
    PENDING = "pending"  # requested; the person has not confirmed by the mailed token yet
    ACTIVE = "active"
    UNSUBSCRIBED = "unsubscribed"  # the person left
    REMOVED = "removed"  # the owner removed the person


class Tier(StrEnum):
    FREE = "free"
    SILVER = "silver"
    GOLD = "gold"


_ACTIVE = "status = 'active'"


class Subscription(Model):
    """A list's own record of a person, with its own copy of their name and address."""

    __tablename__ = "subscriptions"
    __table_args__ = (
        # The person comes first, so that the index also finds all subscriptions of a person.
        UniqueConstraint("user_id", "list_id"),
        known("status", SubscriptionStatus),
        known("type", Tier),
        Index(
            "ix_subscriptions_import_id",
            "import_id",
            "id",
            postgresql_where="import_id IS NOT NULL",
        ),
        # For the owner's pages: newest first, by address or its beginning, those on a paid tier;
        # then the same for members who are not active. Most rows are active and may arrive a
        # million at a time: without the status their partial indexes are half as large. Pages read
        # them backwards: ids rise, and an index that grows at its end stays dense.
        Index("ix_subscriptions_active", "list_id", "id", postgresql_where=_ACTIVE),
        Index(
            "ix_subscriptions_active_email",
            "list_id",
            "email",
            postgresql_include=["id"],
            postgresql_ops={"email": "text_pattern_ops"},
            postgresql_where=_ACTIVE,
        ),
        Index(
            "ix_subscriptions_active_premium",
            "list_id",
            "id",
            postgresql_include=["type", "paid_expiry"],
            postgresql_where="status = 'active' AND type <> 'free'",
        ),
        # Of requests that nobody confirmed, which lapse.
        Index(
            "ix_subscriptions_requested",
            text("coalesce(confirmation_asked_at, created_at)"),
            postgresql_where="status = 'pending'",
        ),
        Index(
            "ix_subscriptions_inactive",
            "list_id",
            "status",
            "id",
            postgresql_include=["email"],
            postgresql_where="status <> 'active'",
        ),
        # For filters (services/mailing/filters). Most members have neither tags nor fields, nor
        # another day of joining than that of their record, so imports write to few of these.
        Index(
            "ix_subscriptions_tag_ids",
            "tag_ids",
            postgresql_using="gin",
            postgresql_where="tag_ids <> '{}'",
        ),
        # In folded case, so that a text is found without regard to case.
        Index(
            "ix_subscriptions_fields",
            text("(casefold(fields::text COLLATE pg_unicode_fast)::jsonb) jsonb_path_ops"),
            postgresql_using="gin",
            postgresql_where="fields <> '{}'",
        ),
        # Of any three characters in a row, for any part of a name or an address.
        Index(
            "ix_subscriptions_words",
            text("casefold(name COLLATE pg_unicode_fast) gin_trgm_ops"),
            text("email gin_trgm_ops"),
            postgresql_using="gin",
        ),
        Index("ix_subscriptions_status_created_at", "list_id", "status", "created_at"),
        Index(
            "ix_subscriptions_joined_at",
            "list_id",
            "joined_at",
            postgresql_where="joined_at IS NOT NULL",
        ),
    )

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"))
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    status: Mapped[str]
    type: Mapped[str] = mapped_column(default=Tier.FREE, server_default=Tier.FREE)
    paid_expiry: Mapped[datetime | None]
    email_enabled: Mapped[bool] = mapped_column(default=True, server_default=text("true"))
    name: Mapped[str | None]
    # NULL after the person was erased.
    email: Mapped[str | None]
    # How the person first joined: challenge, form, login, import, transfer.
    source: Mapped[str]
    confirmation_asked_at: Mapped[datetime | None]
    # Of each field, by its id as text, the value as its type stores it.
    fields: Mapped[dict[str, Any]] = mapped_column(default=dict, server_default=text("'{}'"))
    # Sorted, each once. The id of a tag that was deleted may stay, and stands for nothing.
    tag_ids: Mapped[list[int]] = mapped_column(default=list, server_default=text("'{}'"))
    # When the person joined, as another product said that the list came from. NULL: `created_at`.
    joined_at: Mapped[datetime | None]
    # What a form said of a person whom the list knew already: the token that is mailed next takes
    # it along, and it is set when the person confirms by that token.
    submitted: Mapped[dict[str, Any] | None]
    # In which the person subscribed; our mails to them keep it. NULL: not known.
    language: Mapped[str | None]
    # The import that last made the record active, and when. Every later change moves `updated_at`,
    # so that an undo of the import can leave a changed record alone.
    import_id: Mapped[int | None] = mapped_column(ForeignKey("imports.id"))
    imported_at: Mapped[datetime | None]
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]
