from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, RandomId, SerialId, UpdatedAt, known


class MailingList(Model):
    """A list (a channel) that people subscribe to."""

    __tablename__ = "lists"
    __table_args__ = (
        # Routes take a slug or an id, so a slug must not look like an id.
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
        Index("ix_lists_user_id_created_at", "user_id", text("created_at DESC"), text("id DESC")),
        Index("ix_lists_suspicious", "id", postgresql_where="suspicious_words IS NOT NULL"),
        Index("ix_lists_open", "user_id", postgresql_where="archived_at IS NULL"),
    )

    id: Mapped[RandomId]
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    slug: Mapped[str] = mapped_column(unique=True)
    title: Mapped[str]
    tagline: Mapped[str | None]
    description: Mapped[str | None]
    avatar_image_url: Mapped[str | None]
    favicon_image_url: Mapped[str | None]
    # True if the list is sent by mail.
    email_channel_enabled: Mapped[bool] = mapped_column(default=True, server_default=text("true"))
    challenge_enabled: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    challenge_provider: Mapped[str | None]
    # The trace ids of this delivery, and of those before it, only leave the list.
    traces_revoked_through: Mapped[int | None]
    # Without it whoever names an address makes its person a member.
    confirm_required: Mapped[bool] = mapped_column(default=True, server_default=text("true"))
    # To these a sign-up form on a page of the owner's may lead back.
    redirect_origins: Mapped[list[str]] = mapped_column(default=list, server_default=text("'{}'"))
    # The owner's public fields that its sign-up form asks for, by their ids; NULL: all of them.
    asked_field_ids: Mapped[list[int] | None]
    # The fields without which nobody signs up.
    required_field_ids: Mapped[list[int]] = mapped_column(default=list, server_default=text("'{}'"))
    # The version of its consent wording that holds now; NULL: the list has none.
    consent_wording_version: Mapped[int | None]
    # How readers see it, as the owner chose: a colour `#rrggbb`, one of the owner's attachments by
    # its `hash_id`, who its mails say that they are from, and the owner's own words.
    colour: Mapped[str | None]
    logo_hash_id: Mapped[str | None]
    sender_name: Mapped[str | None]
    sign_up_text: Mapped[str | None]
    thanks_text: Mapped[str | None]
    confirmation_text: Mapped[str | None]
    # Words in these texts that no operator has looked at yet; NULL: none.
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
    """A member field, which an owner defines once for all of the owner's lists.

    A retired field is hidden everywhere, but Pressroom keeps the members' values of this field.
    ``subscriptions.fields`` stores a member's values by the ids of the fields, so that renaming a
    field changes no row of ``subscriptions``.
    """

    __tablename__ = "fields"
    __table_args__ = (
        known("type", FieldType),
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
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    key: Mapped[str]
    label: Mapped[str]
    description: Mapped[str | None]
    type: Mapped[str]
    choices: Mapped[list[str]] = mapped_column(default=list, server_default=text("'{}'"))
    # People may set it themselves, by a form.
    is_public: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    retired_at: Mapped[datetime | None]
    # Words in its label and choices that no operator has looked at yet; NULL: none.
    suspicious_words: Mapped[list[str] | None]
    created_at: Mapped[CreatedAt]


class MemberTag(Model):
    """A word that an owner uses to group the members of one list.

    ``subscriptions.tag_ids`` stores the ids of a member's tags, so that renaming a tag changes no
    row of ``subscriptions``.
    """

    __tablename__ = "tags"
    __table_args__ = (
        CheckConstraint("char_length(name) BETWEEN 1 AND 40", name="name_bounded"),
        UniqueConstraint("list_id", "folded"),
    )

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"))
    # As it was first written.
    name: Mapped[str]
    # The name without regard to case. Python folds it: what the database takes for one letter
    # depends on its locale.
    folded: Mapped[str]
    created_at: Mapped[CreatedAt]


class DeletedTag(Model):
    """A tag that its owner deleted, until no member has its id any more."""

    __tablename__ = "deleted_tags"

    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"), primary_key=True)
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    created_at: Mapped[CreatedAt]


class Segment(Model):
    """A filter of a list's members that its owner keeps under a name."""

    __tablename__ = "segments"
    __table_args__ = (UniqueConstraint("list_id", "folded"),)

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"))
    name: Mapped[str]
    # The name without regard to case, as tags have it.
    folded: Mapped[str]
    # As `services.subscriptions.filters.member_filter` keeps it. Lists of segments leave it out.
    filter: Mapped[dict[str, Any]] = mapped_column(deferred=True)
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]


class ListReport(Model):
    """A person's word that they did not ask for a list, or a stranger's that its page deceives.

    There is one for each person and list, and one for each stranger's network and list.
    """

    __tablename__ = "list_reports"
    __table_args__ = (
        UniqueConstraint("list_id", "user_id"),
        UniqueConstraint("network_digest", "list_id"),
    )

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"))
    # NULL after the person was erased: the report still counts.
    user_id: Mapped[int | None] = mapped_column(
        ForeignKey("users.id", ondelete="SET NULL"), index=True
    )
    # An HMAC of the stranger's network, of a report from a list's page.
    network_digest: Mapped[bytes | None]
    created_at: Mapped[CreatedAt] = mapped_column(index=True)
