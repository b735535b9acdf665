"""Jobs, which are units of slow work, and records of idempotent requests.

The transaction of a request writes the row of the job. The broker transports only the id of the
job. If the broker loses a message, the sweep sends another message, so that every committed job
runs.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from core.queues import Queue
from models.declarative import CreatedAt, Model, SerialId, allow_values


class JobStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINISHED = (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED)


class Job(Model):
    __tablename__ = "jobs"
    __table_args__ = (
        allow_values("status", JobStatus),
        allow_values("queue", Queue),
        CheckConstraint(
            "(status = 'running') = (lease_expires_at IS NOT NULL)", name="lease_while_running"
        ),
        CheckConstraint(
            "(status IN ('succeeded', 'failed', 'cancelled')) = (finished_at IS NOT NULL)",
            name="finished_at_when_finished",
        ),
        Index(None, "queue", "send_after", postgresql_where="status = 'queued' AND sends > 0"),
        Index(
            "ix_jobs_queue_send_after_unsent",
            "queue",
            "send_after",
            postgresql_where="status = 'queued' AND sends = 0",
        ),
        Index(
            None,
            "queue",
            "on_behalf_of",
            "sends",
            "send_after",
            postgresql_where="status = 'queued'",
        ),
        Index(None, "lease_expires_at", postgresql_where="status = 'running'"),
        Index("ix_jobs_user_id_id", "user_id", text("id DESC")),
        Index(None, "finished_at", postgresql_where="finished_at IS NOT NULL"),
    )

    id: Mapped[SerialId]
    kind: Mapped[str]
    queue: Mapped[str]
    # The user who sees the job.
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    # The user who benefits from the job, or 0 for Pressroom. A queue alternates between users, so
    # that no user can block the queue.
    on_behalf_of: Mapped[int] = mapped_column(default=0, server_default="0")
    subject_id: Mapped[int | None]
    status: Mapped[str] = mapped_column(default=JobStatus.QUEUED, server_default="queued")

    # The number of claims, which serves as a fencing token. Every write of a worker checks the
    # attempt, so that a worker without a lease can't change the job.
    attempt: Mapped[int] = mapped_column(default=0, server_default="0")
    # The number of consecutive leases that were lost without progress. The count exposes a job that
    # crashes every worker.
    crashes: Mapped[int] = mapped_column(default=0, server_default="0")
    # The number of consecutive temporary failures.
    retries: Mapped[int] = mapped_column(default=0, server_default="0")
    # The time of the first temporary failure since the last success.
    failing_since: Mapped[datetime | None]
    # The reason for the last temporary failure.
    last_reason: Mapped[str | None]
    lease_expires_at: Mapped[datetime | None]
    cancel_requested: Mapped[bool] = mapped_column(default=False, server_default=text("false"))

    # The earliest time of the next claim. A retry waits until this time.
    run_at: Mapped[CreatedAt]
    # The earliest time of the next message that the sweep sends for a queued job. The column also
    # determines the order of queued jobs without a message (`sends` is 0).
    send_after: Mapped[CreatedAt]
    sends: Mapped[int] = mapped_column(default=0, server_default="0")

    progress_done: Mapped[int] = mapped_column(default=0, server_default="0")
    progress_total: Mapped[int | None]
    result: Mapped[dict[str, Any] | None]
    error: Mapped[dict[str, Any] | None]
    request_id: Mapped[str | None] = mapped_column(Text)
    # The span that enqueued the job, in the format of W3C Trace Context. NULL without tracing.
    traceparent: Mapped[str | None] = mapped_column(Text)
    # The API process whose caller may wait for the job. Only this process is notified of changes.
    # NULL notifies all processes.
    waiter: Mapped[str | None]
    # The number of changes that callers can see. Server-sent events use the version as their id.
    version: Mapped[int] = mapped_column(default=1, server_default="1")

    created_at: Mapped[CreatedAt]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class IdempotencyRecord(Model):
    """The first request with an ``Idempotency-Key``, with its job or its complete response."""

    __tablename__ = "idempotency_records"
    __table_args__ = (
        UniqueConstraint("caller_id", "route", "key"),
        CheckConstraint("(job_id IS NULL) <> (answer IS NULL)", name="job_or_answer"),
        CheckConstraint("octet_length(fingerprint) = 32", name="fingerprint_length"),
        Index(None, "expires_at"),
        Index(None, "job_id"),
    )

    id: Mapped[SerialId]
    caller_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    route: Mapped[str]
    key: Mapped[str]
    # SHA-256 of method, path, query and body.
    fingerprint: Mapped[bytes]
    # A foreign key isn't necessary, because a job outlives its idempotency records.
    job_id: Mapped[int | None]
    answer: Mapped[dict[str, Any] | None]
    expires_at: Mapped[datetime] = mapped_column(server_default=text("now() + interval '24 hours'"))
    created_at: Mapped[CreatedAt]
