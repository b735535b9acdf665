from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId


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
    # The address that the token was mailed to, where that may differ from the person's address.
    email: Mapped[str | None] = mapped_column(index=True)
    # Only the mail has the secret itself.
    secret_hmac: Mapped[bytes] = mapped_column(unique=True)
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]
    # What the person is to confirm beside the subscription, as `subscriptions.submitted` has it.
    submitted: Mapped[dict[str, Any] | None]
    created_at: Mapped[CreatedAt]
