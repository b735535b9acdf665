"""A job is a row: the truth about a piece of slow work, and the outbox that it is sent from.

The broker carries only ids. The row is written in the transaction of the request for the work, so
work that was committed is done: the sweep sends again what the broker loses.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from core.queues import Queue
from models.declarative import CreatedAt, Model, SerialId, known


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
        known("status", JobStatus),
        known("queue", Queue),
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
    # The user for whom it is done: in a queue, the jobs of one take turns with those of another. 0
    # stands for Pressroom itself.
    on_behalf_of: Mapped[int] = mapped_column(default=0, server_default="0")
    subject_id: Mapped[int | None]
    status: Mapped[str] = mapped_column(default=JobStatus.QUEUED, server_default="queued")

    # The number of claims, and a fencing token: every write of a worker checks it, so that a worker
    # that lost its lease changes nothing.
    attempt: Mapped[int] = mapped_column(default=0, server_default="0")
    # Leases lost in a row without progress. A poison job kills its worker each time.
    crashes: Mapped[int] = mapped_column(default=0, server_default="0")
    # Transient failures in a row, when the first of them was, and why the last one.
    retries: Mapped[int] = mapped_column(default=0, server_default="0")
    failing_since: Mapped[datetime | None]
    last_reason: Mapped[str | None]
    lease_expires_at: Mapped[datetime | None]
    cancel_requested: Mapped[bool] = mapped_column(default=False, server_default=text("false"))

    # The job is not claimed before this time (backoff).
    run_at: Mapped[CreatedAt]
    # A queued job that was sent is sent again after this time; one that was not sent (`sends` is 0)
    # has its turn after those that have waited for longer.
    send_after: Mapped[CreatedAt]
    sends: Mapped[int] = mapped_column(default=0, server_default="0")

    progress_done: Mapped[int] = mapped_column(default=0, server_default="0")
    progress_total: Mapped[int | None]
    result: Mapped[dict[str, Any] | None]
    error: Mapped[dict[str, Any] | None]
    request_id: Mapped[str | None] = mapped_column(Text)
    # The span that asked for it, where traces are recorded (W3C Trace Context).
    traceparent: Mapped[str | None] = mapped_column(Text)
    # The API process that asked for this job, whose caller may wait: it alone is notified of
    # changes. Without one, all processes are.
    waiter: Mapped[str | None]
    # Rises with every change that a caller can see; it is the id of a server-sent event.
    version: Mapped[int] = mapped_column(default=1, server_default="1")

    created_at: Mapped[CreatedAt]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class IdempotencyRecord(Model):
    """The first request under an ``Idempotency-Key``: its job, or its reply word for word."""

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
    # No foreign key: a job is purged long after its records are gone.
    job_id: Mapped[int | None]
    answer: Mapped[dict[str, Any] | None]
    expires_at: Mapped[datetime] = mapped_column(server_default=text("now() + interval '24 hours'"))
    created_at: Mapped[CreatedAt]
