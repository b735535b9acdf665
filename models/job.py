"""Jobs, which workers run, and records of idempotent requests.

A job's row is inserted in the transaction of the request that enqueues the job. A broker message
contains only the id of a job. A periodic sweep sends lost broker messages again, so that every
committed job runs.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    ARRAY,
    CheckConstraint,
    ForeignKey,
    Index,
    Integer,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import AccountId
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
    # The user who can see the job in the API.
    user_id: Mapped[AccountId | None] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    # The job runs on behalf of the user with this id. The value is 0 for an internal job. A queue
    # alternates between users, so that no user can block it.
    on_behalf_of: Mapped[int] = mapped_column(default=0, server_default="0")
    subject_id: Mapped[int | None]
    # The limited API key that enqueued the job, and that can see the job without its scope.
    key_id: Mapped[int | None]
    status: Mapped[str] = mapped_column(default=JobStatus.QUEUED, server_default="queued")

    # How many times workers claimed the job, which serves as a fencing token. Every write checks
    # the fencing token, so that a worker without a lease can't change the job.
    attempt: Mapped[int] = mapped_column(default=0, server_default="0")
    # The number of leases that workers have lost since the job last made progress. A high number of
    # lost leases reveals a job that crashes its workers.
    crashes: Mapped[int] = mapped_column(default=0, server_default="0")
    # The values of ``attempt`` that ``crashes`` counts. If the worker of such an attempt turns out
    # to be alive, its crash no longer counts.
    crashed_attempts: Mapped[list[int]] = mapped_column(
        ARRAY(Integer), default=list, server_default="{}"
    )
    # The number of attempts over their time limit since the job last made progress.
    slow_attempts: Mapped[int] = mapped_column(default=0, server_default="0")
    # The number of consecutive temporary failures of the job.
    retries: Mapped[int] = mapped_column(default=0, server_default="0")
    # The time of the first temporary failure after the job's last progress.
    failing_since: Mapped[datetime | None]
    # The reason for the job's last temporary failure.
    last_reason: Mapped[str | None]
    lease_expires_at: Mapped[datetime | None]
    cancel_requested: Mapped[bool] = mapped_column(default=False, server_default=text("false"))

    # The earliest time at which a worker may claim the job, for example after the delay of a retry.
    run_at: Mapped[CreatedAt]
    # The earliest time at which the sweep sends a broker message for the queued job. Queued jobs
    # without a broker message (`sends` is 0) get their first message in the order of `send_after`.
    send_after: Mapped[CreatedAt]
    sends: Mapped[int] = mapped_column(default=0, server_default="0")

    progress_done: Mapped[int] = mapped_column(default=0, server_default="0")
    progress_total: Mapped[int | None]
    result: Mapped[dict[str, Any] | None]
    error: Mapped[dict[str, Any] | None]
    request_id: Mapped[str | None] = mapped_column(Text)
    # The W3C Trace Context of the span in which the job was enqueued, or NULL without tracing.
    traceparent: Mapped[str | None] = mapped_column(Text)
    # The API process that is notified when the job changes, or NULL to notify every API process.
    waiter: Mapped[str | None]
    # The version of the job, which increases with each change that API callers can see. The id of a
    # server-sent event about a job is the job's version.
    version: Mapped[int] = mapped_column(default=1, server_default="1")

    created_at: Mapped[CreatedAt]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class IdempotencyRecord(Model):
    """The first request with an ``Idempotency-Key``, and its job or complete response."""

    __tablename__ = "idempotency_records"
    __table_args__ = (
        UniqueConstraint("caller_id", "route", "key"),
        CheckConstraint("(job_id IS NULL) <> (answer IS NULL)", name="job_or_answer"),
        CheckConstraint("octet_length(fingerprint) = 32", name="fingerprint_length"),
        Index(None, "expires_at"),
        Index(None, "job_id"),
    )

    id: Mapped[SerialId]
    caller_id: Mapped[AccountId] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    route: Mapped[str]
    key: Mapped[str]
    # SHA-256 of the request's method, path, query and body.
    fingerprint: Mapped[bytes]
    # ``job_id`` needs no foreign key, because a job's row outlives the job's idempotency records.
    job_id: Mapped[int | None]
    answer: Mapped[dict[str, Any] | None]
    expires_at: Mapped[datetime] = mapped_column(server_default=text("now() + interval '24 hours'"))
    created_at: Mapped[CreatedAt]
