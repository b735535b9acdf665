"""The work itself: what was imported, converted, mailed, charged, and asked of other servers."""

from decimal import Decimal
from enum import StrEnum
from functools import cache

from prometheus_client import Counter, Gauge, Histogram

IMPORTED_ROWS = Counter("pressroom_import_rows", "Rows of imports that were applied")
CONVERSION_SECONDS = Histogram(
    "pressroom_conversion_seconds",
    "Time that the conversion of an image takes",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
_KILLS = Counter("pressroom_conversion_kills", "Converters that crashed or were killed", ["cause"])
_MAILS = Counter("pressroom_mails", "Mails for the mail server, by how that ended", ["outcome"])
_PROVIDER_CALLS = Counter(
    "pressroom_provider_calls", "Calls to other people's servers", ["provider", "outcome"]
)
_PROVIDER_SECONDS = Histogram(
    "pressroom_provider_seconds",
    "Time that a call to another server takes",
    ["provider"],
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
# Of several processes the one that fares worst counts.
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
_ORDERS = Counter("pressroom_order_changes", "Orders that came to a status", ["status"])

_circuit_of = cache(_CIRCUIT.labels)
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
    _MAILS.labels(_outcome)
for _cause in Kill:
    _KILLS.labels(_cause)


def count_kill(cause: Kill) -> None:
    _KILLS.labels(cause).inc()


def count_mail(outcome: MailOutcome) -> None:
    _MAILS.labels(outcome).inc()


def count_provider_call(provider: str, outcome: ProviderOutcome, seconds: float) -> None:
    _PROVIDER_CALLS.labels(provider, outcome).inc()
    _PROVIDER_SECONDS.labels(provider).observe(seconds)


def show_circuit(server: str, *, is_open: bool) -> None:
    _circuit_of(server).set(is_open)


def count_credits(action: str, amount: Decimal) -> None:
    _credits_of(action).inc(float(amount))


def count_money(direction: MoneyDirection, currency: str, amount: Decimal) -> None:
    _MONEY.labels(direction, currency).inc(float(amount))


def count_order(status: str) -> None:
    _ORDERS.labels(status).inc()
