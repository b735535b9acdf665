from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId


class IdempotencyRecord(Model):
    """The first request under an ``Idempotency-Key``: its job, or its reply word for word."""

    __tablename__ = "idempotency_records"
    __table_args__ = (
        UniqueConstraint("caller_id", "route", "key"),
        CheckConstraint("(job_id IS NULL) <> (answer IS NULL)", name="job_or_answer"),
        CheckConstraint("octet_length(fingerprint) = 32", name="fingerprint_length"),
        Index("ix_idempotency_records_expires_at", "expires_at"),
        Index("ix_idempotency_records_job_id", "job_id"),
    )

    id: Mapped[SerialId]
    caller_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    route: Mapped[str]
    key: Mapped[str]
    # SHA-256 of method, path, query and body.
    fingerprint: Mapped[bytes]
    # No foreign key: jobs are dropped by the partition, long after their records are gone.
    job_id: Mapped[int | None]
    answer: Mapped[dict[str, Any] | None]
    expires_at: Mapped[datetime] = mapped_column(server_default=text("now() + interval '24 hours'"))
    created_at: Mapped[CreatedAt]
