"""Subscriptions of people to lists, the history of subscriptions, and mailed tokens."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import PersonId
from models.declarative import CreatedAt, Model, SerialId, UpdatedAt, allow_values

_ACTIVE = "status = 'active'"
# The SQL condition that a member left the list, or that a bounce turned the member's mail off.
IS_DEPARTURE = (
    "status_before = 'active' AND (status_after IN ('unsubscribed', 'removed')"
    " AND action <> 'import_undone' OR action IN ('bounced', 'soft_bounced'))"
)


class SubscriptionStatus(StrEnum):
    # The person hasn't confirmed the subscription with the mailed token yet.
    PENDING = "pending"
    ACTIVE = "active"
    # The person unsubscribed from the list.
    UNSUBSCRIBED = "unsubscribed"
    # The owner removed the person from the list.
    REMOVED = "removed"


class Tier(StrEnum):
    FREE = "free"
    SILVER = "silver"
    GOLD = "gold"


class Subscription(Model):
    """A person's subscription to one list, with a copy of the person's name and e-mail address."""

    __tablename__ = "subscriptions"
    __table_args__ = (
        # ``user_id`` is the first column of the index, so that queries for all subscriptions of a
        # person can use it.
        UniqueConstraint("user_id", "list_id"),
        allow_values("status", SubscriptionStatus),
        allow_values("type", Tier),
        Index(
            "ix_subscriptions_import_id",
            "import_id",
            "id",
            postgresql_where="import_id IS NOT NULL",
        ),
        # Indexes for owners' pages, which show the latest members, find members by address and list
        # members on a paid tier. The indexes contain only active members, which halves their size.
        # New members are appended at the end of the index, which keeps it compact. To show the
        # latest members first, queries scan ``ix_subscriptions_active`` backwards.
        Index("ix_subscriptions_active", "list_id", "id", postgresql_where=_ACTIVE),
        Index(
            "ix_subscriptions_active_email",
            "list_id",
            "email",
            postgresql_include=["id"],
            postgresql_ops={"email": "text_pattern_ops"},
            postgresql_where=_ACTIVE,
        ),
        # An index for sorting active members by the time at which they joined.
        Index(
            "ix_subscriptions_active_joined",
            "list_id",
            text("coalesce(joined_at, created_at)"),
            "id",
            postgresql_where=_ACTIVE,
        ),
        Index(
            "ix_subscriptions_active_premium",
            "list_id",
            "id",
            postgresql_include=["type", "paid_expiry"],
            postgresql_where="status = 'active' AND type <> 'free'",
        ),
        # An index for finding expired subscription requests that were never confirmed.
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
        # Indexes for filters of members (services/subscriptions/filters). Members without tags or
        # field values aren't indexed, which speeds up imports.
        Index(
            "ix_subscriptions_tag_ids",
            "tag_ids",
            postgresql_using="gin",
            postgresql_where="tag_ids <> '{}'",
        ),
        # The index on member fields contains case-folded field values, because filters are
        # case-insensitive.
        Index(
            "ix_subscriptions_fields",
            text("(casefold(fields::text COLLATE pg_unicode_fast)::jsonb) jsonb_path_ops"),
            postgresql_using="gin",
            postgresql_where="fields <> '{}'",
        ),
        # An index for filters by origin, such as the name of a campaign. A filter that compares a
        # complete value of the origin uses the second column of the index, and a filter that
        # compares a part of a value uses the third column. ``list_id`` is the first column of the
        # index, so that a filter reads only the index entries of one list.
        Index(
            "ix_subscriptions_origin",
            "list_id",
            text("(casefold(origin::text COLLATE pg_unicode_fast)::jsonb) jsonb_path_ops"),
            text("casefold(origin::text COLLATE pg_unicode_fast) gin_trgm_ops"),
            postgresql_using="gin",
            postgresql_where="origin IS NOT NULL",
        ),
        # A trigram index, which finds members by any part of a name or address. ``list_id`` is the
        # first column, so that a search reads only the entries of one list.
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
    user_id: Mapped[PersonId] = mapped_column(ForeignKey("users.id"))
    status: Mapped[str]
    type: Mapped[str] = mapped_column(default=Tier.FREE, server_default=Tier.FREE)
    paid_expiry: Mapped[datetime | None]
    email_enabled: Mapped[bool] = mapped_column(default=True, server_default=text("true"))
    name: Mapped[str | None]
    # The person's e-mail address, or NULL after the person's erasure.
    email: Mapped[str | None]
    # The way in which the person first joined the list: challenge, form, login, import or transfer.
    source: Mapped[str]
    confirmation_asked_at: Mapped[datetime | None]
    # The time of the only reminder to confirm the subscription, or NULL for no reminder.
    remind_at: Mapped[datetime | None]
    # The member's field values, by the id of the field as text.
    fields: Mapped[dict[str, Any]] = mapped_column(default=dict, server_default=text("'{}'"))
    # The ids of the member's tags in ascending order, without duplicates. Maintenance removes the
    # ids of deleted tags from members.
    tag_ids: Mapped[list[int]] = mapped_column(default=list, server_default=text("'{}'"))
    # The time at which the person joined the list according to an import, or NULL if the person
    # joined at `created_at`.
    joined_at: Mapped[datetime | None]
    # The answers in the sign-up form of a person who was already subscribed. The answers in the
    # form are copied to the next mailed token, and take effect when the person uses the token.
    submitted: Mapped[dict[str, Any] | None]
    # The language of the page on which the person subscribed, or NULL if it is unknown.
    language: Mapped[str | None]
    # Where the person's first sign-up for the list came from, as a JSON object with keys such as
    # `utm_source`. NULL if the origin is unknown. The origin is copied from a consent entry or
    # consent claim, so that filters can use an index.
    origin: Mapped[dict[str, Any] | None]
    # The latest import that activated the subscription.
    import_id: Mapped[int | None] = mapped_column(ForeignKey("imports.id"))
    # The time at which the import `import_id` activated the subscription. An undo of the import
    # skips the subscription if `updated_at` is later than `imported_at`.
    imported_at: Mapped[datetime | None]
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]


class SubscriptionEvent(Model):
    """A change of a subscription, and who or what made it.

    A subscription event never changes, except for its IP address. After 90 days, the IP address is
    shortened to its network. The erasure of a person deletes the IP addresses in the person's
    events.
    """

    __tablename__ = "subscription_events"
    __table_args__ = (
        Index("ix_subscription_events_member", "list_id", "user_id", text("id DESC")),
        # The erasure of a person uses this index to find events about the person.
        Index("ix_subscription_events_user_id_id", "user_id", "id"),
        # An index for counting requested confirmations and confirmed subscriptions.
        Index(
            "ix_subscription_events_sign_ups",
            "list_id",
            "created_at",
            postgresql_where="action = 'confirmed' OR action = 'requested'"
            " AND status_after = 'pending'",
        ),
        # An index for counting and finding the members who left, by the reason.
        Index(
            "ix_subscription_events_departures",
            "list_id",
            "created_at",
            "action",
            "reason",
            "user_id",
            postgresql_where=IS_DEPARTURE,
        ),
        # An index for finding the members who left by the mail of a mailing.
        Index(
            "ix_subscription_events_mailing_id",
            "mailing_id",
            "action",
            "user_id",
            postgresql_where="mailing_id IS NOT NULL",
        ),
        # The erasure of a person uses this index to find events that the person caused. The index
        # excludes the many events of imports and undos, which have neither an IP address nor a
        # request id.
        Index(
            "ix_subscription_events_actor_id_id",
            "actor_id",
            "id",
            postgresql_where="actor_id IS NOT NULL AND (ip IS NOT NULL OR request_id IS NOT NULL)",
        ),
    )

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"))
    user_id: Mapped[PersonId] = mapped_column(ForeignKey("users.id"))
    # The type of the change, such as `unsubscribed`. If an imported file of bounces or complaints
    # unsubscribed the member, `bounced` or `complained`.
    action: Mapped[str]
    # The role of the actor: user, owner, operator, import, stranger or sender.
    actor: Mapped[str]
    actor_id: Mapped[int | None]
    # The channel of the change: login, trace, one-click, page, confirmation, challenge, form,
    # import, bulk, command or sender.
    via: Mapped[str]
    status_before: Mapped[str | None]
    status_after: Mapped[str | None]
    email_enabled_before: Mapped[bool | None]
    email_enabled_after: Mapped[bool | None]
    # The names of changed attributes whose values the event doesn't store, such as `name`, `tags`
    # or `fields.city`.
    changed: Mapped[list[str] | None]
    # The reason for unsubscribing that the person chose from a fixed list, or NULL for no reason.
    reason: Mapped[str | None]
    # The mailing whose mail caused the change, by its unsubscribe link or by a sender's report.
    mailing_id: Mapped[int | None]
    ip: Mapped[str | None]
    request_id: Mapped[str | None]
    created_at: Mapped[CreatedAt]


class MailedLink(Model):
    """A token that can be used once, and proves ownership of the e-mail address."""

    __tablename__ = "mailed_links"
    __table_args__ = (
        CheckConstraint("octet_length(secret_hmac) = 32", name="hmac_length"),
        CheckConstraint("user_id IS NOT NULL OR email IS NOT NULL", name="about_somebody"),
        Index("ix_mailed_links_user_id_list_id", "user_id", "list_id"),
        Index("ix_mailed_links_expires_at", "expires_at"),
    )

    id: Mapped[SerialId]
    purpose: Mapped[str]
    # The user who received the token, or NULL for an address without a user.
    user_id: Mapped[PersonId | None] = mapped_column(ForeignKey("users.id"))
    list_id: Mapped[int | None] = mapped_column(ForeignKey("lists.id"))
    # The address to which the token was mailed, or NULL for the address of the user's account.
    email: Mapped[str | None] = mapped_column(index=True)
    # An HMAC of the token's secret, which only the mail contains.
    secret_hmac: Mapped[bytes] = mapped_column(unique=True)
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]
    # The answers in the sign-up form, which the person confirms together with the subscription.
    submitted: Mapped[dict[str, Any] | None]
    created_at: Mapped[CreatedAt]
