from datetime import datetime

from sqlalchemy import CheckConstraint, false, true
from sqlalchemy.orm import Mapped, mapped_column

from core.plans import Plan
from models.declarative import CreatedAt, Model, RandomId, UpdatedAt, known


class User(Model):
    """A person. One who only subscribed or was imported has no password hash and can't log in."""

    __tablename__ = "users"
    __table_args__ = (
        known("plan", Plan),
        CheckConstraint("email = lower(email)", name="email_normalised"),
    )

    id: Mapped[RandomId]
    email: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str | None]
    password_hash: Mapped[str | None]
    plan: Mapped[str] = mapped_column(default=Plan.FREE, server_default=Plan.FREE)
    # Runs this deployment. Only the command line makes one, and a login needs a second factor.
    is_operator: Mapped[bool] = mapped_column(default=False, server_default=false())
    # Whether a mail tells of the end of each import of a file.
    import_mails: Mapped[bool] = mapped_column(default=True, server_default=true())
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]
    # When the person last took their account back (``services.recovery``).
    recovered_at: Mapped[datetime | None]
    # When the person was erased. The row holds nothing personal then; it stays for foreign keys.
    erased_at: Mapped[datetime | None]
    # The person of the account into which this record is merged: nothing is written about it
    # any more. No foreign key: `account_merges` has both, and this row is read with each act.
    merged_into: Mapped[int | None]
