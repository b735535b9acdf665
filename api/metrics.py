"""Defines the Prometheus metrics of the API process and of the whole deployment."""

import math
from collections.abc import Iterable, Mapping
from functools import cache

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from core.errors.mailing import LIST_BUSY
from core.errors.requests import QUEUE_OVERLOADED, QUEUE_TOO_MANY_WAITERS, SERVICE_BUSY
from core.telemetry import spans
from services.composer import call_charges as usage
from services.deployment_figures import DeploymentFigures

# Disable the metrics for creation times of counters, because no alert or dashboard uses them.
disable_created_metrics()  # type: ignore[no-untyped-call]

_CONNECTIONS = Gauge(
    "pressroom_database_server_connections", "Open connections at the database server"
)
_CONNECTION_LIMIT = Gauge(
    "pressroom_database_server_connections_limit",
    "Maximum number of connections at the database server",
)
_JOBS = Gauge("pressroom_jobs", "Unfinished jobs", ["queue", "status"])
_DUE = Gauge("pressroom_due_jobs", "Due jobs that wait for a worker", ["queue", "kind"])
_OLDEST = Gauge(
    "pressroom_job_oldest_seconds", "Time since the oldest waiting job became due", ["queue"]
)
_ORDERS = Gauge("pressroom_open_orders", "Orders that need an action", ["status"])
_ENDPOINTS = Gauge("pressroom_webhook_endpoints", "Active webhook endpoints", ["state"])
_WEBHOOK_LAG = Gauge(
    "pressroom_webhook_lag_seconds", "Longest time that a webhook endpoint has waited for a worker"
)
_WEBHOOK_FAILING = Gauge(
    "pressroom_webhook_failing_seconds", "Longest time that a webhook endpoint has been failing"
)
_MAINTENANCE_LATE = Gauge(
    "pressroom_maintenance_late_seconds",
    "Time since a maintenance task became due",
    ["maintenance"],
)
_MAINTENANCE_FAILED = Gauge(
    "pressroom_maintenance_failed",
    "1 if the last run of a maintenance task failed",
    ["maintenance"],
)
_OVERDUE = Gauge(
    "pressroom_overdue_rows",
    "Rows that maintenance should have deleted at least two runs ago",
    ["table"],
)
_LEDGER_FAULTS = Gauge("pressroom_ledger_faults", "Ledger errors found by the last daily check")
DEPENDENCY_UP = {
    "database": Gauge("pressroom_database_up", "1 while this process can reach the database"),
    "redis": Gauge("pressroom_redis_up", "1 while this process can reach Redis"),
    "broker": Gauge("pressroom_broker_up", "1 while this process can reach the broker"),
    "objects": Gauge("pressroom_objects_up", "1 while this process can reach the object storage"),
}
DISK_FULL = Gauge(
    "pressroom_disk_full", "1 while the disk of a store is full, as far as known here", ["store"]
)
REQUESTS = Counter("pressroom_requests", "Completed requests", ["method", "route", "status"])
REQUEST_SECONDS = Histogram(
    "pressroom_request_seconds",
    "Time from a request's first byte to the end of its response",
    ["method", "route"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60),
)
LOGINS = Counter("pressroom_logins", "Login attempts by result", ["outcome"])
WAITING_REQUESTS = Gauge("pressroom_waiting_requests", "Requests that wait for a worker")
BULKHEAD_ERRORS = Counter(
    "pressroom_bulkhead_errors", "Requests rejected because no thread was free", ["bulkhead"]
)
CANARY_SECONDS = Gauge(
    "pressroom_canary_seconds", "Time until a worker received a test message", ["queue"]
)
ERRORS = Counter("pressroom_errors", "Rejected requests by error code", ["code"])
BODY_BYTES = Gauge("pressroom_request_body_bytes", "Memory used by request bodies", ["reserve"])

PHOTO_LIMIT = Gauge(
    "pressroom_stock_photo_quota", "Requests that a photo provider allows", ["provider", "window"]
)
PHOTO_REMAINING = Gauge(
    "pressroom_stock_photo_quota_remaining",
    "Requests that are left in a photo provider's quota",
    ["provider", "window"],
)

_LABELLED_DATABASE_GAUGES = (
    _JOBS,
    _DUE,
    _OLDEST,
    _ORDERS,
    _ENDPOINTS,
    _MAINTENANCE_LATE,
    _MAINTENANCE_FAILED,
    _OVERDUE,
)
_PLAIN_DATABASE_GAUGES = (
    _CONNECTIONS,
    _CONNECTION_LIMIT,
    _WEBHOOK_LAG,
    _WEBHOOK_FAILING,
    _LEDGER_FAULTS,
)

# Set the counters that alerts use to 0 at startup, so that alerts notice the first increase.
for _outcome in ("succeeded", "failed", "paused"):
    LOGINS.labels(_outcome)
for _error in (SERVICE_BUSY, QUEUE_OVERLOADED, QUEUE_TOO_MANY_WAITERS, LIST_BUSY):
    ERRORS.labels(_error.code)


def clear_database_gauges() -> None:
    """Remove the values of all metrics that were read from the database.

    While the database is unavailable, outdated values would mislead operators.
    """
    for gauge in _LABELLED_DATABASE_GAUGES:
        gauge.clear()
    for gauge in _PLAIN_DATABASE_GAUGES:
        gauge.set(math.nan)


def set_database_gauges(figures: DeploymentFigures, overdue: Mapping[str, int]) -> None:
    clear_database_gauges()
    _CONNECTIONS.set(figures.connections.open)
    _CONNECTION_LIMIT.set(figures.connections.limit)
    for (queue, status), count in figures.jobs.unfinished.items():
        _JOBS.labels(queue, status).set(count)
    for (queue, kind), count in figures.jobs.due.items():
        _DUE.labels(queue, kind).set(count)
    for gauge, values in (
        (_OLDEST, figures.jobs.oldest),
        (_ORDERS, figures.orders),
        (_MAINTENANCE_LATE, figures.maintenance.late_seconds),
        (_OVERDUE, overdue),
    ):
        for label, value in values.items():
            gauge.labels(label).set(value)
    for maintenance in figures.maintenance.late_seconds:
        _MAINTENANCE_FAILED.labels(maintenance).set(maintenance in figures.maintenance.failed)
    webhooks = figures.webhooks
    _ENDPOINTS.labels("failing").set(webhooks.failing)
    _ENDPOINTS.labels("working").set(webhooks.active - webhooks.failing)
    _WEBHOOK_LAG.set(webhooks.late_seconds)
    _WEBHOOK_FAILING.set(webhooks.failing_seconds)
    # Until the first check of the ledger, the number of ledger faults is unknown.
    faults = figures.ledger_faults
    _LEDGER_FAULTS.set(math.nan if faults is None else faults)


# Maps a measure such as tokens, a label and a language model to a total.
UsageSums = dict[tuple[str, str, str], float]


class _UsageCollector(Collector):
    """Exports the usage of language models, which workers store in Redis."""

    def __init__(self) -> None:
        self.sums: UsageSums = {}

    def collect(self) -> Iterable[CounterMetricFamily]:
        calls = CounterMetricFamily(
            "pressroom_llm_calls", "Requests to the language model", labels=["model", "outcome"]
        )
        tokens = CounterMetricFamily(
            "pressroom_llm_tokens",
            "Tokens used by the language model",
            labels=["model", "direction"],
        )
        seconds = CounterMetricFamily(
            "pressroom_llm_seconds",
            "Total duration of requests to the language model",
            labels=["model"],
        )
        families = {usage.CALLS: calls, usage.TOKENS: tokens, usage.SECONDS: seconds}
        for (measure, label, model), value in self.sums.items():
            families[measure].add_metric([model, label] if label else [model], value)
        return families.values()


LLM_USAGE = _UsageCollector()
REGISTRY.register(LLM_USAGE)


def observe_request(method: str, route: str, status: int, seconds: float) -> None:
    _request_counter(method, route, status).inc()
    _duration_histogram(method, route).observe(seconds, spans.current_ids() or None)


# Cache the metric per combination of labels, because the Prometheus library locks each lookup.
_request_counter = cache(REQUESTS.labels)
_duration_histogram = cache(REQUEST_SECONDS.labels)
