from typing import Any, Self

from pydantic import Field

from api.schemas.envelope import Schema, Timestamp
from models import Job
from services.jobs.records import error_shown, next_try_at, progress_of


class JobProgress(Schema):
    done: int
    total: int | None = Field(description="null until it is known")
    per_second: float | None = Field(description="Mean rate since the job started")
    eta_seconds: float | None = Field(description="Seconds to go at that rate")


class JobRecord(Schema):
    id: int
    kind: str = Field(examples=["attachment.process"])
    status: str = Field(description="queued, running, succeeded, failed or cancelled")
    progress: JobProgress
    result: dict[str, Any] | None
    error: dict[str, Any] | None = Field(description="code and message of what ended it")
    last_reason: str | None = Field(description="Why the last try failed, while it fails")
    next_try_at: Timestamp | None = Field(description="When a job that failed is tried again")
    created_at: Timestamp
    started_at: Timestamp | None
    finished_at: Timestamp | None

    @classmethod
    def of(cls, job: Job, result: dict[str, Any] | None) -> Self:
        """``result``: the job's own, with fresh signed URLs."""
        progress = JobProgress.model_validate(progress_of(job))
        return cls.of_row(
            job,
            progress=progress,
            result=result,
            error=error_shown(job),
            next_try_at=next_try_at(job),
        )
