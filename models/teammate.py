"""Teammates, the people who may act in an account."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, PrimaryKeyConstraint, func
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import AccountId, PersonId
from core.permissions import Role
from models.declarative import Model, allow_values


class Teammate(Model):
    """An account without rows in this table belongs to the person with the same id.

    A database trigger ensures that an account with rows has an owner.
    """

    __tablename__ = "teammates"
    __table_args__ = (
        PrimaryKeyConstraint("account_id", "person_id"),
        allow_values("role", Role),
        Index("ix_teammates_owner", "account_id", unique=True, postgresql_where="role = 'owner'"),
    )

    account_id: Mapped[AccountId] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    person_id: Mapped[PersonId] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), index=True
    )
    role: Mapped[str]
    joined_at: Mapped[datetime] = mapped_column(server_default=func.now())
