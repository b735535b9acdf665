"""Metrics of imports, image conversions, mails, payments, jobs and calls to remote servers."""

from decimal import Decimal
from enum import StrEnum
from functools import cache

from prometheus_client import Counter, Gauge, Histogram

from core.errors.jobs import (
    JOB_BROKE,
    JOB_GIVEN_UP,
    JOB_ROWS_FAILED,
    JOB_WORKER_LOST,
)

IMPORTED_ROWS = Counter("pressroom_import_rows", "Imported rows")
CONVERSION_SECONDS = Histogram(
    "pressroom_conversion_seconds",
    "Duration of an image conversion",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
KILLS = Counter(
    "pressroom_conversion_kills", "Image converters that crashed or timed out", ["cause"]
)
MAILS = Counter("pressroom_mails", "Mails by response of the mail server", ["outcome"])
_PROVIDER_CALLS = Counter(
    "pressroom_provider_calls", "Calls to external providers", ["provider", "outcome"]
)
_PROVIDER_SECONDS = Histogram(
    "pressroom_provider_seconds",
    "Duration of a call to an external provider",
    ["provider"],
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
# The gauge is 1 while at least one process rejects calls to the server.
_CIRCUIT = Gauge(
    "pressroom_circuit_open",
    "1 while calls to a failing server are skipped",
    ["server"],
    multiprocess_mode="livemax",
)
_CREDITS = Counter("pressroom_credits", "Credits moved by ledger entries", ["action"])
_MONEY = Counter(
    "pressroom_money",
    "Payments and refunds of orders, in units of the currency",
    ["direction", "currency"],
)
ORDERS = Counter("pressroom_order_changes", "Orders that entered a status", ["status"])

_KIND_LABELS = ["queue", "kind"]
# The histogram buckets for the waiting and running times of jobs, from 10 milliseconds to half an
# hour.
_JOB_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)

_ATTEMPTS = Counter("pressroom_job_attempts", "Attempts to run jobs", _KIND_LABELS)
_WAITING = Histogram(
    "pressroom_job_waiting_seconds",
    "Time from a job's due time to its first attempt",
    _KIND_LABELS,
    buckets=_JOB_SECONDS,
)
_RUNNING = Histogram(
    "pressroom_job_running_seconds",
    "Duration of one turn of a job",
    _KIND_LABELS,
    buckets=_JOB_SECONDS,
)
RETRIES = Counter(
    "pressroom_job_retries", "Job attempts that failed and will be retried", _KIND_LABELS
)
LEASES_LOST = Counter(
    "pressroom_job_leases_lost", "Running jobs whose worker disappeared", _KIND_LABELS
)
_ENDED = Counter("pressroom_jobs_ended", "Finished jobs by status", [*_KIND_LABELS, "status"])
_FAILURES = Counter("pressroom_job_failures", "Failed jobs by error code", [*_KIND_LABELS, "code"])

# Cache the labelled metrics, because ``prometheus_client`` takes a lock and formats the labels at
# each lookup.
_attempts_counter = cache(_ATTEMPTS.labels)
_waiting_histogram = cache(_WAITING.labels)
running_histogram = cache(_RUNNING.labels)
_ended_counter = cache(_ENDED.labels)
circuit_gauge = cache(_CIRCUIT.labels)
_credits_counter = cache(_CREDITS.labels)

# Job errors that indicate a fault in Pressroom and trigger an alert.
_INTERNAL_ERRORS = (JOB_BROKE, JOB_ROWS_FAILED, JOB_GIVEN_UP, JOB_WORKER_LOST)


class Kill(StrEnum):
    """The reason why an image converter process ended without a result."""

    # The conversion took too much CPU time.
    TOO_SLOW = "too_slow"
    # The conversion wasn't finished in time, because the machine is busy. It is retried.
    LATE = "late"
    CRASHED = "crashed"


class MailOutcome(StrEnum):
    SENT = "sent"
    # The mail server rejected the mail temporarily, so a worker will retry.
    DEFERRED = "deferred"
    REFUSED = "refused"


class ProviderOutcome(StrEnum):
    ANSWERED = "answered"
    # The call exceeded the provider's rate limit.
    LIMITED = "limited"
    FAILED = "failed"


class MoneyDirection(StrEnum):
    IN = "in"
    # Money that was returned to payers through refunds and lost disputes.
    OUT = "out"


# Counters start at 0, so that Prometheus sees their first increase.
for _outcome in MailOutcome:
    MAILS.labels(_outcome)
for _cause in Kill:
    KILLS.labels(_cause)


def initialize_provider_counters(provider: str) -> None:
    for outcome in ProviderOutcome:
        _PROVIDER_CALLS.labels(provider, outcome)


def count_provider_call(provider: str, outcome: ProviderOutcome, seconds: float) -> None:
    _PROVIDER_CALLS.labels(provider, outcome).inc()
    _PROVIDER_SECONDS.labels(provider).observe(seconds)


def count_credits(action: str, amount: Decimal) -> None:
    _credits_counter(action).inc(float(amount))


def count_money(direction: MoneyDirection, currency: str, amount: Decimal) -> None:
    _MONEY.labels(direction, currency).inc(float(amount))


def initialize_job_counters(queue: str, kind: str) -> None:
    """Create the counters for one kind of job with the value 0.

    Without the initial value 0, a Prometheus rate would miss a counter's first event.
    """
    for counter in (_ATTEMPTS, RETRIES, LEASES_LOST):
        counter.labels(queue, kind)
    for error in _INTERNAL_ERRORS:
        _FAILURES.labels(queue, kind, error.code)


def count_claim(queue: str, kind: str, *, waited: float | None) -> None:
    """``waited`` is the delay of a job's first claim in seconds, or ``None`` for later claims."""
    _attempts_counter(queue, kind).inc()
    if waited is not None:
        _waiting_histogram(queue, kind).observe(max(waited, 0.0))


def count_end(queue: str, kind: str, status: str, code: str | None) -> None:
    _ended_counter(queue, kind, status).inc()
    if code is not None:
        _FAILURES.labels(queue, kind, code).inc()
