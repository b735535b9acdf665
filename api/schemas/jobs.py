"""The request and response bodies of the API endpoints for jobs."""

from typing import Annotated, Any, Self

from pydantic import Field
from typing_extensions import TypeAliasType

from api.schemas.envelope import Schema, Timestamp
from models import Job
from services.jobs.records import describe_error, get_retry_time, measure_progress

JobId = TypeAliasType(
    "JobId", Annotated[int, Field(description="Id of the running job", examples=[6204117398252])]
)


class JobProgress(Schema):
    done: int = Field(examples=[5000])
    total: int | None = Field(
        description="Total number of steps, or null if the total isn't known yet", examples=[5000]
    )
    per_second: float | None = Field(
        description="Average number of steps per second since the job started", examples=[2500.0]
    )
    eta_seconds: float | None = Field(
        description="Estimated remaining time in seconds", examples=[0.0]
    )


class JobRecord(Schema):
    id: int
    kind: str = Field(examples=["members.import"])
    status: str = Field(
        description="queued, running, succeeded, failed or cancelled", examples=["succeeded"]
    )
    progress: JobProgress
    result: dict[str, Any] | None = Field(examples=[{"added": 4930, "invalid": 8}])
    error: dict[str, Any] | None = Field(
        description="Error code and message of a failed job", examples=[None]
    )
    last_reason: str | None = Field(
        description="Reason why the last attempt failed, while the job is failing", examples=[None]
    )
    next_try_at: Timestamp | None = Field(
        description="Time of the next retry of a failing job", examples=[None]
    )
    created_at: Timestamp
    started_at: Timestamp | None
    finished_at: Timestamp | None

    @classmethod
    def of(cls, job: Job, result: dict[str, Any] | None) -> Self:
        """Build the record of a job in a response.

        ``result``: the job's result with newly signed URLs of the job's files.
        """
        progress = JobProgress.model_validate(measure_progress(job))
        return cls.of_row(
            job,
            progress=progress,
            result=result,
            error=describe_error(job),
            next_try_at=get_retry_time(job),
        )
