from datetime import datetime
from enum import StrEnum

from sqlalchemy import CheckConstraint
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import random_id
from models.declarative import CreatedAt, Model, UpdatedAt


class Plan(StrEnum):
    FREE = "free"
    PAID = "paid"


class User(Model):
    """A person. One who only subscribed or was imported has no password hash and can't log in."""

    __tablename__ = "users"
    __table_args__ = (
        CheckConstraint("plan IN ('free', 'paid')", name="plan_known"),
        CheckConstraint("email = lower(email)", name="email_normalised"),
    )

    id: Mapped[int] = mapped_column(primary_key=True, default=random_id, autoincrement=False)
    email: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str | None]
    password_hash: Mapped[str | None]
    plan: Mapped[str] = mapped_column(default=Plan.FREE, server_default=Plan.FREE)
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]
    # When the person was erased. The row holds nothing personal then; it stays for foreign keys.
    erased_at: Mapped[datetime | None]
