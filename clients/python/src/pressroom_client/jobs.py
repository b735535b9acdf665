"""Waits for a job by reading the job's event stream, and reconnects after a lost connection."""

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
# The API sends a comment every 15 s to keep an event stream open. If the API sends nothing for 45
# s, the connection counts as lost.
_SILENCE_SECONDS = 45.0
_FIRST_PAUSE_SECONDS = 0.2
_MAX_PAUSE_SECONDS = 10.0


def watch_job(
    calls: Calls, job_id: int, *, timeout: float | None = None
) -> Iterator[types.JobRecord]:
    """Yield the record of a job after each change, until the job ends.

    Raises ``TimeoutError`` if the job hasn't ended after about ``timeout`` seconds.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    last_id: str | None = None
    pause = _FIRST_PAUSE_SECONDS
    while True:
        remaining = _remaining_seconds(deadline, job_id)
        try:
            with closing(
                calls._call_events(
                    _EVENTS,
                    path={"job_id": job_id},
                    query={},
                    header={"Last-Event-ID": last_id},
                    timeout=min(_SILENCE_SECONDS, remaining),
                )
            ) as events:
                for event in events:
                    last_id = event.id or last_id
                    pause = _FIRST_PAUSE_SECONDS
                    job = cast("types.JobRecord", json.loads(event.data))
                    yield job
                    if job["status"] in _ENDED:
                        return
                    _remaining_seconds(deadline, job_id)
        except NotReached:
            pass
        except ApiError as error:
            # Retry if the caller has too many open event streams, or if the API process is shutting
            # down.
            if error.status not in {TOO_MANY, UNAVAILABLE}:
                raise
        time.sleep(min(pause, _remaining_seconds(deadline, job_id)))
        pause = min(pause * 2, _MAX_PAUSE_SECONDS)


def wait_for_job(
    calls: Calls,
    job_id: int,
    *,
    on_progress: Callable[[types.JobRecord], object] | None = None,
    timeout: float | None = None,
) -> types.JobRecord:
    """Wait until a job has succeeded, and return the record of the job.

    Raises ``JobFailed`` if the job fails or is cancelled. Raises ``TimeoutError`` if the job hasn't
    ended after about ``timeout`` seconds.
    """
    for job in watch_job(calls, job_id, timeout=timeout):
        if on_progress:
            on_progress(job)
        if job["status"] == "succeeded":
            return job
        if job["status"] in _ENDED:
            raise JobFailed(job)
    raise AssertionError("a watched job ends")


def _remaining_seconds(deadline: float | None, job_id: int) -> float:
    """Return the seconds until the deadline, or raise ``TimeoutError`` if it has passed."""
    if deadline is None:
        return float("inf")
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError(f"Job {job_id} has not ended yet; it goes on.")
    return remaining
