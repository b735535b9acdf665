"""The work itself: what was imported, converted, mailed, charged, and asked of other servers."""

from decimal import Decimal
from enum import StrEnum
from functools import cache

from prometheus_client import Counter, Gauge, Histogram

from core.errors.jobs import JOB_BROKE, JOB_GIVEN_UP, JOB_TOO_SLOW, JOB_WORKER_LOST

IMPORTED_ROWS = Counter("pressroom_import_rows", "Rows of imports that were applied")
CONVERSION_SECONDS = Histogram(
    "pressroom_conversion_seconds",
    "Time that the conversion of an image takes",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
KILLS = Counter("pressroom_conversion_kills", "Converters that crashed or were killed", ["cause"])
MAILS = Counter("pressroom_mails", "Mails for the mail server, by how that ended", ["outcome"])
_PROVIDER_CALLS = Counter(
    "pressroom_provider_calls", "Calls to other people's servers", ["provider", "outcome"]
)
_PROVIDER_SECONDS = Histogram(
    "pressroom_provider_seconds",
    "Time that a call to another server takes",
    ["provider"],
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
# The process that fares worst counts.
_CIRCUIT = Gauge(
    "pressroom_circuit_open",
    "1 while a server is left alone since its last calls failed",
    ["server"],
    multiprocess_mode="livemax",
)
_CREDITS = Counter("pressroom_credits", "Credits that the ledger's entries moved", ["action"])
_MONEY = Counter(
    "pressroom_money", "Money of orders, in units of the currency", ["direction", "currency"]
)
ORDERS = Counter("pressroom_order_changes", "Orders that came to a status", ["status"])

circuit_of = cache(_CIRCUIT.labels)
_credits_of = cache(_CREDITS.labels)


class Kill(StrEnum):
    TOO_SLOW = "too_slow"
    CRASHED = "crashed"


class MailOutcome(StrEnum):
    SENT = "sent"
    # To be tried again.
    DEFERRED = "deferred"
    REFUSED = "refused"


class ProviderOutcome(StrEnum):
    ANSWERED = "answered"
    # The provider takes no more calls for now.
    LIMITED = "limited"
    FAILED = "failed"


class MoneyDirection(StrEnum):
    IN = "in"
    # Refunds, and disputes that were lost.
    OUT = "out"


# From 0 on, so that a rate shows the first one of each too.
for _outcome in MailOutcome:
    MAILS.labels(_outcome)
for _cause in Kill:
    KILLS.labels(_cause)


def begin_provider(provider: str) -> None:
    """Begin the counts of a provider's calls at 0."""
    for outcome in ProviderOutcome:
        _PROVIDER_CALLS.labels(provider, outcome)


def count_provider_call(provider: str, outcome: ProviderOutcome, seconds: float) -> None:
    _PROVIDER_CALLS.labels(provider, outcome).inc()
    _PROVIDER_SECONDS.labels(provider).observe(seconds)


def count_credits(action: str, amount: Decimal) -> None:
    _credits_of(action).inc(float(amount))


def count_money(direction: MoneyDirection, currency: str, amount: Decimal) -> None:
    _MONEY.labels(direction, currency).inc(float(amount))


_KIND = ["queue", "kind"]
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
RETRIES = Counter("pressroom_job_retries", "Attempts that failed for a passing reason", _KIND)
LEASES_LOST = Counter("pressroom_job_leases_lost", "Running jobs whose worker was lost", _KIND)
_ENDED = Counter("pressroom_jobs_ended", "Jobs that have ended, by how", [*_KIND, "status"])
_FAILURES = Counter("pressroom_job_failures", "Jobs that failed, by their error", [*_KIND, "code"])

# Cached, because the library takes a lock and turns the labels into text at each lookup.
_attempts_of = cache(_ATTEMPTS.labels)
_waiting_of = cache(_WAITING.labels)
running_of = cache(_RUNNING.labels)
_ended_of = cache(_ENDED.labels)


# Errors that tell of our own trouble and not of the work: alerts ask for them.
_OF_OURS = (JOB_BROKE, JOB_GIVEN_UP, JOB_WORKER_LOST, JOB_TOO_SLOW)


def begin(queue: str, kind: str) -> None:
    """Begin the counts of a kind at 0.

    A series that begins with its first event at 1 has not risen, and so no rate shows that event.
    """
    for counter in (_ATTEMPTS, RETRIES, LEASES_LOST):
        counter.labels(queue, kind)
    for error in _OF_OURS:
        _FAILURES.labels(queue, kind, error.code)


def count_claim(queue: str, kind: str, *, waited: float | None) -> None:
    """``waited``: the seconds since the job was due, at its first claim."""
    _attempts_of(queue, kind).inc()
    if waited is not None:
        _waiting_of(queue, kind).observe(max(waited, 0.0))


def count_end(queue: str, kind: str, status: str, code: str | None) -> None:
    """``code``: that of the error of a job that failed."""
    _ended_of(queue, kind, status).inc()
    if code is not None:
        _FAILURES.labels(queue, kind, code).inc()
