"""Waiting for a job by its event stream, which may break off and be taken up again."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import cast

from pressroom_client.calls import Calls, Operation
from pressroom_client.errors import ApiError, JobFailed, NotReached
from pressroom_client.generated import types
from pressroom_client.retries import TOO_MANY, UNAVAILABLE

_EVENTS = Operation("GET", "/jobs/{job_id}/events")
_ENDED = {"succeeded", "failed", "cancelled"}
# The API sends a comment every 15 s, so that silence is a broken connection.
_SILENCE_SECONDS = 45.0
_FIRST_PAUSE_SECONDS = 0.2
_MAX_PAUSE_SECONDS = 10.0


def watch(calls: Calls, job_id: int, *, timeout: float | None = None) -> Iterator[types.JobRecord]:
    """The job at each change, the last time when it has ended.

    Raises ``TimeoutError`` when it has not ended after about ``timeout`` seconds.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    last_id: str | None = None
    pause = _FIRST_PAUSE_SECONDS
    while True:
        left = _left(deadline, job_id)
        try:
            with closing(
                calls._call_events(
                    _EVENTS,
                    path={"job_id": job_id},
                    query={},
                    header={"Last-Event-ID": last_id},
                    timeout=min(_SILENCE_SECONDS, left),
                )
            ) as events:
                for event in events:
                    last_id, pause = event.id or last_id, _FIRST_PAUSE_SECONDS
                    job = cast("types.JobRecord", json.loads(event.data))
                    yield job
                    if job["status"] in _ENDED:
                        return
                    _left(deadline, job_id)
        except NotReached:
            pass
        except ApiError as error:
            # Too many streams of one caller, or a process that is about to end.
            if error.status not in {TOO_MANY, UNAVAILABLE}:
                raise
        time.sleep(min(pause, _left(deadline, job_id)))
        pause = min(pause * 2, _MAX_PAUSE_SECONDS)


def wait(
    calls: Calls,
    job_id: int,
    *,
    on_progress: Callable[[types.JobRecord], object] | None = None,
    timeout: float | None = None,
) -> types.JobRecord:
    """The job once it succeeded. Raises ``JobFailed``, and ``TimeoutError`` as ``watch`` does."""
    for job in watch(calls, job_id, timeout=timeout):
        if on_progress:
            on_progress(job)
        if job["status"] == "succeeded":
            return job
        if job["status"] in _ENDED:
            raise JobFailed(job)
    raise AssertionError("a watched job ends")


def _left(deadline: float | None, job_id: int) -> float:
    if deadline is None:
        return float("inf")
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError(f"Job {job_id} has not ended yet; it goes on.")
    return left
