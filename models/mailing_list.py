"""Mailing lists, member fields, tags, segments, and reports about lists."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import AccountId, PersonId
from models.declarative import CreatedAt, Model, RandomId, SerialId, UpdatedAt, allow_values
from models.engagement import EngagementMode

DEFAULT_SOFT_BOUNCE_LIMIT = 5
MAX_SOFT_BOUNCE_LIMIT = 20


class MailingList(Model):
    __tablename__ = "lists"
    __table_args__ = (
        # API routes accept a list's slug or id, so a slug must not look like an id.
        CheckConstraint(
            "slug ~ '^[a-z0-9][a-z0-9-]{0,79}$' AND slug !~ '^[0-9]+$'", name="slug_form"
        ),
        CheckConstraint(
            "challenge_provider IN ('turnstile', 'hcaptcha', 'recaptcha')", name="provider_known"
        ),
        CheckConstraint(
            "NOT challenge_enabled OR challenge_provider IS NOT NULL", name="challenge_has_provider"
        ),
        CheckConstraint("cardinality(redirect_origins) <= 10", name="redirect_origins_few"),
        CheckConstraint(
            f"soft_bounce_limit BETWEEN 0 AND {MAX_SOFT_BOUNCE_LIMIT}",
            name="soft_bounce_limit_range",
        ),
        allow_values("engagement", EngagementMode),
        Index("ix_lists_user_id_created_at", "user_id", text("created_at DESC"), text("id DESC")),
        Index("ix_lists_suspicious", "id", postgresql_where="suspicious_words IS NOT NULL"),
        Index("ix_lists_open", "user_id", postgresql_where="archived_at IS NULL"),
    )

    id: Mapped[RandomId]
    user_id: Mapped[AccountId] = mapped_column(ForeignKey("users.id"))
    slug: Mapped[str] = mapped_column(unique=True)
    title: Mapped[str]
    tagline: Mapped[str | None]
    description: Mapped[str | None]
    avatar_image_url: Mapped[str | None]
    favicon_image_url: Mapped[str | None]
    # True if the list's newsletters are sent by mail.
    email_channel_enabled: Mapped[bool] = mapped_column(default=True, server_default=text("true"))
    challenge_enabled: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    challenge_provider: Mapped[str | None]
    # The delivery number up to which trace ids are revoked, or NULL if none are revoked. A revoked
    # trace id can only be used to unsubscribe.
    traces_revoked_through: Mapped[int | None]
    # True if new members must confirm their address. Without confirmation, anyone can subscribe any
    # address.
    confirm_required: Mapped[bool] = mapped_column(default=True, server_default=text("true"))
    # The origins to which a sign-up form on the owner's website may redirect.
    redirect_origins: Mapped[list[str]] = mapped_column(default=list, server_default=text("'{}'"))
    # The URL to which readers are redirected after they confirm, or NULL to show Pressroom's page.
    confirmed_redirect: Mapped[str | None]
    # The ids of the public fields in the sign-up form, or NULL for all public fields.
    asked_field_ids: Mapped[list[int] | None]
    # The ids of the fields that people must fill in when they sign up.
    required_field_ids: Mapped[list[int]] = mapped_column(default=list, server_default=text("'{}'"))
    # The current version of the list's consent wording, or NULL if the list has no consent wording.
    consent_wording_version: Mapped[int | None]
    # The brand colour of the list's pages and mails, in the format `#rrggbb`.
    colour: Mapped[str | None]
    # The `hash_id` of the attachment that serves as the list's logo.
    logo_hash_id: Mapped[str | None]
    # The name of the sender in the list's mails.
    sender_name: Mapped[str | None]
    sign_up_text: Mapped[str | None]
    thanks_text: Mapped[str | None]
    confirmation_text: Mapped[str | None]
    # The list's mail to a member is turned off after soft bounces of ``soft_bounce_limit``
    # consecutive mailings. If ``soft_bounce_limit`` is 0, soft bounces never turn mail off.
    soft_bounce_limit: Mapped[int] = mapped_column(
        default=DEFAULT_SOFT_BOUNCE_LIMIT, server_default=text(f"{DEFAULT_SOFT_BOUNCE_LIMIT}")
    )
    # The members whose opens and clicks the list records, as a value of `EngagementMode`.
    engagement: Mapped[str] = mapped_column(
        default=EngagementMode.OFF, server_default=EngagementMode.OFF
    )
    # The owner's text of the question whether the list may record opens and clicks. If it is NULL,
    # pages show a default text in the reader's language.
    engagement_wording: Mapped[str | None]
    # Suspicious words in the list's texts, which an operator must review, or NULL if there are
    # none.
    suspicious_words: Mapped[list[str] | None]
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]
    archived_at: Mapped[datetime | None]


class FieldType(StrEnum):
    TEXT = "text"
    NUMBER = "number"
    DATE = "date"
    BOOLEAN = "boolean"
    CHOICE = "choice"


class MemberField(Model):
    """A member field, which an owner defines once for all lists.

    A retired field is hidden everywhere, but the members' values are kept. ``subscriptions.fields``
    refers to fields by their ids, so that subscriptions don't change when a field is renamed.
    """

    __tablename__ = "fields"
    __table_args__ = (
        allow_values("type", FieldType),
        CheckConstraint("key ~ '^[a-z][a-z0-9_]{0,39}$'", name="key_form"),
        CheckConstraint("(type = 'choice') = (cardinality(choices) > 0)", name="choices_of_choice"),
        Index("ix_fields_user_id", "user_id"),
        Index("ix_fields_suspicious", "id", postgresql_where="suspicious_words IS NOT NULL"),
        Index(
            "uq_fields_user_id_key",
            "user_id",
            "key",
            unique=True,
            postgresql_where="retired_at IS NULL",
        ),
    )

    id: Mapped[SerialId]
    user_id: Mapped[AccountId] = mapped_column(ForeignKey("users.id"))
    key: Mapped[str]
    label: Mapped[str]
    description: Mapped[str | None]
    type: Mapped[str]
    choices: Mapped[list[str]] = mapped_column(default=list, server_default=text("'{}'"))
    # True if people can fill in the field in a form.
    is_public: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    retired_at: Mapped[datetime | None]
    # Suspicious words in the field's label or choices, which an operator must review, or NULL if
    # there are none.
    suspicious_words: Mapped[list[str] | None]
    created_at: Mapped[CreatedAt]


class MemberTag(Model):
    """``subscriptions.tag_ids`` refers to tags by their ids, so that renaming a tag changes no
    subscription.
    """

    __tablename__ = "tags"
    __table_args__ = (
        CheckConstraint("char_length(name) BETWEEN 1 AND 40", name="name_bounded"),
        UniqueConstraint("list_id", "folded"),
    )

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"))
    # The tag's name as the owner wrote it.
    name: Mapped[str]
    # The case-folded name. Python folds the case, because case folding in the database depends on
    # the locale.
    folded: Mapped[str]
    created_at: Mapped[CreatedAt]


class DeletedTag(Model):
    """Maintenance deletes the row of a deleted tag after removing the tag from all members."""

    __tablename__ = "deleted_tags"

    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"), primary_key=True)
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    created_at: Mapped[CreatedAt]


class Segment(Model):
    __tablename__ = "segments"
    __table_args__ = (UniqueConstraint("list_id", "folded"),)

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"))
    name: Mapped[str]
    # The case-folded name.
    folded: Mapped[str]
    # The segment's filter in the format of `services.subscriptions.filters.member_filter`. The
    # filter is loaded only when code reads it.
    filter: Mapped[dict[str, Any]] = mapped_column(deferred=True)
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]


class ListReport(Model):
    """Each person can report a list once. Strangers can report a list once per network."""

    __tablename__ = "list_reports"
    __table_args__ = (
        UniqueConstraint("list_id", "user_id"),
        UniqueConstraint("network_digest", "list_id"),
    )

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"))
    # The person who reported the list, or NULL for a stranger's report and after the person's
    # erasure.
    user_id: Mapped[PersonId | None] = mapped_column(
        ForeignKey("users.id", ondelete="SET NULL"), index=True
    )
    # An HMAC of the network from which a stranger reported the list.
    network_digest: Mapped[bytes | None]
    created_at: Mapped[CreatedAt] = mapped_column(index=True)
