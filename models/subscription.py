from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, text
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
        # Finds unconfirmed requests that have expired.
        Index(
            "ix_subscriptions_requested",
            text("coalesce(confirmation_asked_at, created_at)"),
            postgresql_where="status = 'pending'",
        ),
        Index(
            "ix_subscriptions_remind_at",
            "remind_at",
            postgresql_where="status = 'pending' AND remind_at IS NOT NULL",
        ),
        Index(
            "ix_subscriptions_inactive",
            "list_id",
            "status",
            "id",
            postgresql_include=["email"],
            postgresql_where="status <> 'active'",
        ),
        # For filters (services/subscriptions/filters). Most members have neither tags nor fields,
        # and joined on the day of their record, so imports write to few of these.
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
        # Indexes three characters in a row, for any part of a name or an address in one list: a
        # search costs nothing for the members of other owners.
        Index(
            "ix_subscriptions_words",
            "list_id",
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
    # When a person who has not confirmed by then is reminded, once; NULL: they are not, or were.
    remind_at: Mapped[datetime | None]
    # The value of each field as its type stores it, by the field's id as text.
    fields: Mapped[dict[str, Any]] = mapped_column(default=dict, server_default=text("'{}'"))
    # Sorted, each once. Maintenance takes off the id of a tag that was deleted; it stands for
    # nothing.
    tag_ids: Mapped[list[int]] = mapped_column(default=list, server_default=text("'{}'"))
    # When the person joined, as another product said that the list came from. NULL: `created_at`.
    joined_at: Mapped[datetime | None]
    # The answers of a form about a person whom the list knew already: the token that is mailed next
    # takes it along, and it is set when the person confirms by that token.
    submitted: Mapped[dict[str, Any] | None]
    # In which the person subscribed; our mails to them keep it. NULL: not known.
    language: Mapped[str | None]
    # The import that last made the record active, and when. Every later change moves `updated_at`,
    # so that an undo of the import can leave a changed record alone.
    import_id: Mapped[int | None] = mapped_column(ForeignKey("imports.id"))
    imported_at: Mapped[datetime | None]
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]


class SubscriptionEvent(Model):
    """A change of a subscription: what, when, by which actor and from where.

    A row is never changed, but for its IP address: after 90 days its network alone stays, and of a
    person who is erased nothing.
    """

    __tablename__ = "subscription_events"
    __table_args__ = (
        Index("ix_subscription_events_member", "list_id", "user_id", text("id DESC")),
        # For the erasure of a person, which goes through what is about them and what they did. Most
        # rows that name an actor are those of imports and undos, which come from no address.
        Index("ix_subscription_events_user_id_id", "user_id", "id"),
        # Counts who was asked to confirm, and who did.
        Index(
            "ix_subscription_events_sign_ups",
            "list_id",
            "created_at",
            postgresql_where="action = 'confirmed' OR action = 'requested'"
            " AND status_after = 'pending'",
        ),
        Index(
            "ix_subscription_events_actor_id_id",
            "actor_id",
            "id",
            postgresql_where="actor_id IS NOT NULL AND (ip IS NOT NULL OR request_id IS NOT NULL)",
        ),
    )

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"))
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    # The event, such as `unsubscribed`, and the actor: user, owner, operator, import, stranger.
    action: Mapped[str]
    actor: Mapped[str]
    actor_id: Mapped[int | None]
    # How it came: login, trace, one-click, page, confirmation, challenge, form, import, command.
    via: Mapped[str]
    status_before: Mapped[str | None]
    status_after: Mapped[str | None]
    email_enabled_before: Mapped[bool | None]
    email_enabled_after: Mapped[bool | None]
    # Other changes of the record, by names such as `name`, `tags` or `fields.city`.
    changed: Mapped[list[str] | None]
    # Why the person left or stopped the mail, if they said: a word of ours, never one of theirs.
    reason: Mapped[str | None]
    ip: Mapped[str | None]
    request_id: Mapped[str | None]
    created_at: Mapped[CreatedAt]


class MailedLink(Model):
    """A token that was mailed to a person and proves that they read their mail. It works once."""

    __tablename__ = "mailed_links"
    __table_args__ = (
        CheckConstraint("octet_length(secret_hmac) = 32", name="hmac_length"),
        CheckConstraint("user_id IS NOT NULL OR email IS NOT NULL", name="about_somebody"),
        Index("ix_mailed_links_user_id_list_id", "user_id", "list_id"),
        Index("ix_mailed_links_expires_at", "expires_at"),
    )

    id: Mapped[SerialId]
    purpose: Mapped[str]
    # NULL while the address that is to be registered has no user.
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    list_id: Mapped[int | None] = mapped_column(ForeignKey("lists.id"))
    # The address that the token was mailed to, where the person's own may be another, now or later.
    email: Mapped[str | None] = mapped_column(index=True)
    # Only the mail has the secret itself.
    secret_hmac: Mapped[bytes] = mapped_column(unique=True)
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]
    # The answers that the person confirms with the subscription, as `subscriptions.submitted` has
    # it.
    submitted: Mapped[dict[str, Any] | None]
    created_at: Mapped[CreatedAt]
