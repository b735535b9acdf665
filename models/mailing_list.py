from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, RandomId, UpdatedAt


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
    # Whether the list is sent by mail.
    email_channel_enabled: Mapped[bool] = mapped_column(default=True, server_default=text("true"))
    challenge_enabled: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    challenge_provider: Mapped[str | None]
    # The trace ids of this delivery, and of those before it, only leave the list.
    traces_revoked_through: Mapped[int | None]
    confirm_required: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    # To these a sign-up form on a page of the owner's may lead back.
    redirect_origins: Mapped[list[str]] = mapped_column(default=list, server_default=text("'{}'"))
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
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]
    archived_at: Mapped[datetime | None]
