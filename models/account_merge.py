"""Two records of one person on their way to become one: an account, and one that lists made."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId, known


class MergeStatus(StrEnum):
    ASKED = "asked"  # the new address is proved, the present one not yet
    AGREED = "agreed"  # both are proved; the change of address can still be undone
    MERGING = "merging"
    MERGED = "merged"


class AccountMerge(Model):
    """The person of an account proved an address that has a record of its own.

    A row that came to its end holds ids, counts and times alone: by it mailed trace ids of the
    merged record find the person.
    """

    __tablename__ = "account_merges"
    __table_args__ = (
        known("status", MergeStatus),
        CheckConstraint("status = 'asked' OR merged_id IS NOT NULL", name="agreed_on_a_record"),
        Index("ix_account_merges_user_id", "user_id"),
        Index(
            "uq_account_merges_asked", "user_id", unique=True, postgresql_where="status = 'asked'"
        ),
        Index("uq_account_merges_merged_id", "merged_id", unique=True),
        Index("ix_account_merges_expires_at", "expires_at"),
    )

    id: Mapped[SerialId]
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    # The record that is merged into the account; known once the person has agreed.
    merged_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    # The address that the person proved, and the one that the account had; gone at the end.
    email: Mapped[str | None]
    former_email: Mapped[str | None]
    status: Mapped[str] = mapped_column(server_default=MergeStatus.ASKED)
    # When a request lapses to which the person has not agreed.
    expires_at: Mapped[datetime | None]
    agreed_at: Mapped[datetime | None]
    # Without a foreign key: the job is purged some time after its end.
    job_id: Mapped[int | None]
    # Which stage is next (`services.merging.merge_stages`), and where in its table it goes on.
    stage: Mapped[str | None]
    bookmark: Mapped[int | None]
    # The number of rows that each stage has merged so far.
    counts: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    created_at: Mapped[CreatedAt]
    finished_at: Mapped[datetime | None]
