"""Durable work, as the process that claims, ends or sweeps a job counts it."""

from functools import cache

from prometheus_client import Counter, Histogram

_KIND = ["lane", "kind"]
# From the milliseconds of a small job to the patience of a large one.
_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)

_ATTEMPTS = Counter("pressroom_job_attempts", "Claims of jobs", _KIND)
_WAITING = Histogram(
    "pressroom_job_waiting_seconds",
    "Time from when a job is due to its first claim",
    _KIND,
    buckets=_SECONDS,
)
_RUNNING = Histogram(
    "pressroom_job_running_seconds",
    "Time of a worker that one turn of a job takes",
    _KIND,
    buckets=_SECONDS,
)
_RETRIES = Counter("pressroom_job_retries", "Attempts that failed for a passing reason", _KIND)
_LEASES_LOST = Counter("pressroom_job_leases_lost", "Running jobs whose worker was lost", _KIND)
_ENDED = Counter("pressroom_jobs_ended", "Jobs that have ended, by how", [*_KIND, "status"])
_FAILURES = Counter("pressroom_job_failures", "Jobs that failed, by their error", [*_KIND, "code"])

# Cached, because the library takes a lock and turns the labels into text at each lookup.
_attempts_of = cache(_ATTEMPTS.labels)
_waiting_of = cache(_WAITING.labels)
_running_of = cache(_RUNNING.labels)
_ended_of = cache(_ENDED.labels)


# Errors that tell of our own trouble and not of the work: alerts ask for them.
_OF_OURS = ("job.broke", "job.given_up", "job.worker_lost", "job.too_slow")


def begin(lane: str, kind: str) -> None:
    """Begin the counts of a kind at 0.

    A series that begins with its first event at 1 has not risen, and so no rate shows that event.
    """
    for counter in (_ATTEMPTS, _RETRIES, _LEASES_LOST):
        counter.labels(lane, kind)
    for code in _OF_OURS:
        _FAILURES.labels(lane, kind, code)


def count_claim(lane: str, kind: str, *, waited: float | None) -> None:
    """``waited``: the seconds since the job was due, at its first claim."""
    _attempts_of(lane, kind).inc()
    if waited is not None:
        _waiting_of(lane, kind).observe(max(waited, 0.0))


def observe_turn(lane: str, kind: str, seconds: float) -> None:
    _running_of(lane, kind).observe(seconds)


def count_retry(lane: str, kind: str) -> None:
    _RETRIES.labels(lane, kind).inc()


def count_lost_lease(lane: str, kind: str) -> None:
    _LEASES_LOST.labels(lane, kind).inc()


def count_end(lane: str, kind: str, status: str, code: str | None) -> None:
    """``code``: that of the error of a job that failed."""
    _ended_of(lane, kind, status).inc()
    if code is not None:
        _FAILURES.labels(lane, kind, code).inc()
