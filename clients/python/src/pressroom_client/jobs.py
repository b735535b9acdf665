"""Waits for a job by reading the job's event stream, and reconnects after a lost connection."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, cast

from pressroom_client.calls import Calls, Operation
from pressroom_client.errors import ApiError, JobFailed, NotReached
from pressroom_client.events import ServerEvent
from pressroom_client.generated import types
from pressroom_client.retries import TOO_MANY, UNAVAILABLE

EVENTS = Operation("GET", "/jobs/{job_id}/events")
_ENDED = {"succeeded", "failed", "cancelled"}
# The API sends a comment every 15 s to keep an event stream open. If the API sends nothing for 45
# s, the connection counts as lost.
_SILENCE_SECONDS = 45.0
_FIRST_PAUSE_SECONDS = 0.2
_MAX_PAUSE_SECONDS = 10.0


class Watch:
    """The state of a wait for a job, from one event stream to the next."""

    def __init__(self, job_id: int, timeout: float | None) -> None:
        self._job_id = job_id
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._last_id: str | None = None
        self._pause = _FIRST_PAUSE_SECONDS

    def check_deadline(self) -> float:
        """Return the seconds until the deadline, or raise ``TimeoutError`` if it has passed."""
        if self._deadline is None:
            return float("inf")
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError(f"Job {self._job_id} has not ended yet; it goes on.")
        return remaining

    def create_arguments(self) -> dict[str, Any]:
        """Return the arguments of the call that opens the next event stream."""
        return {
            "path": {"job_id": self._job_id},
            "query": {},
            "header": {"Last-Event-ID": self._last_id},
            "timeout": min(_SILENCE_SECONDS, self.check_deadline()),
        }

    def read_event(self, event: ServerEvent) -> types.JobRecord:
        self._last_id = event.id or self._last_id
        self._pause = _FIRST_PAUSE_SECONDS
        return cast("types.JobRecord", json.loads(event.data))

    def next_pause(self, error: NotReached | ApiError | None) -> float:
        """Return the seconds to wait before the next event stream is opened.

        Raises ``error`` unless the next event stream may succeed.
        """
        # Retry if the caller has too many open event streams, or if the API process is shutting
        # down.
        if isinstance(error, ApiError) and error.status not in {TOO_MANY, UNAVAILABLE}:
            raise error
        pause = min(self._pause, self.check_deadline())
        self._pause = min(self._pause * 2, _MAX_PAUSE_SECONDS)
        return pause


def watch_job(
    calls: Calls, job_id: int, *, timeout: float | None = None
) -> Iterator[types.JobRecord]:
    """Yield the record of a job after each change, until the job ends.

    Raises ``TimeoutError`` if the job hasn't ended after about ``timeout`` seconds.
    """
    watch = Watch(job_id, timeout)
    while True:
        failure: NotReached | ApiError | None = None
        try:
            with closing(calls._call_events(EVENTS, **watch.create_arguments())) as events:
                for event in events:
                    job = watch.read_event(event)
                    yield job
                    if has_ended(job):
                        return
                    watch.check_deadline()
        except (NotReached, ApiError) as error:
            failure = error
        time.sleep(watch.next_pause(failure))


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
        if check_success(job):
            return job
    raise AssertionError("a watched job ends")


def has_ended(job: types.JobRecord) -> bool:
    return job["status"] in _ENDED


def check_success(job: types.JobRecord) -> bool:
    """Return whether the job has succeeded. Raises ``JobFailed`` if it failed or was cancelled."""
    if has_ended(job) and job["status"] != "succeeded":
        raise JobFailed(job)
    return job["status"] == "succeeded"
