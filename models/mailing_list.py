from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import random_id
from models.metadata import CreatedAt, Model, UpdatedAt


class MailingList(Model):
    """A list (a channel) that people subscribe to."""

    __tablename__ = "lists"
    __table_args__ = (
        # A slug may stand where an id may, so it can't look like one.
        CheckConstraint(
            "slug ~ '^[a-z0-9][a-z0-9-]{0,79}$' AND slug !~ '^[0-9]+$'", name="slug_form"
        ),
    )

    id: Mapped[int] = mapped_column(primary_key=True, default=random_id, autoincrement=False)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    slug: Mapped[str] = mapped_column(unique=True)
    title: Mapped[str]
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]
    archived_at: Mapped[datetime | None]
