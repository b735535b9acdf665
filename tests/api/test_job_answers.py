"""What a caller who waited is told of a job that ended badly."""

import pytest

from api.job_answers import refusal_of
from core.errors import Kind
from models import Job, JobStatus


def ended(status: JobStatus, code: str, **more: str) -> Job:
    return Job(status=status, error={"code": code, "message": "M", **more})


@pytest.mark.parametrize(
    ("kind", "retry_after"), [(Kind.TOO_SLOW, None), (Kind.CONFLICT, None), (Kind.UNAVAILABLE, 5)]
)
def test_the_kind_that_was_kept_decides(kind: Kind, retry_after: int | None) -> None:
    refusal = refusal_of(ended(JobStatus.FAILED, "job.any", kind=kind))
    assert (refusal.kind, refusal.code, refusal.message) == (kind, "job.any", "M")
    assert refusal.retry_after == retry_after
