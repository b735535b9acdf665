"""What is true of the whole deployment, as its database and the other dependencies tell it."""

import math
from collections.abc import Mapping

from prometheus_client import Gauge

from services.deployment_figures import DeploymentFigures

_JOBS = Gauge("pressroom_jobs", "Jobs that have not ended", ["lane", "status"])
_DUE = Gauge("pressroom_due_jobs", "Jobs that wait for a worker", ["lane", "kind"])
_OLDEST = Gauge("pressroom_job_oldest_seconds", "Age of the oldest job that waits", ["lane"])
_ORDERS = Gauge("pressroom_open_orders", "Orders that wait for somebody", ["status"])
_ENDPOINTS = Gauge("pressroom_webhook_endpoints", "Endpoints that get events", ["state"])
_WEBHOOK_LAG = Gauge(
    "pressroom_webhook_lag_seconds", "Time that the endpoint waits that waits longest for a worker"
)
_WEBHOOK_FAILING = Gauge(
    "pressroom_webhook_failing_seconds", "Time that the endpoint fails that has failed longest"
)
_UPKEEP_LATE = Gauge("pressroom_upkeep_late_seconds", "Time that upkeep has been due", ["upkeep"])
_UPKEEP_FAILED = Gauge(
    "pressroom_upkeep_failed", "1 while the last run of a kind of upkeep failed", ["upkeep"]
)
_OVERDUE = Gauge(
    "pressroom_overdue_rows", "Rows that upkeep should have deleted two rounds ago", ["table"]
)
_LEDGER_FAULTS = Gauge("pressroom_ledger_faults", "Faults that the last daily check found")
_UP = {
    "database": Gauge("pressroom_database_up", "1 while the database answers this process"),
    "redis": Gauge("pressroom_redis_up", "1 while Redis answers this process"),
    "broker": Gauge("pressroom_broker_up", "1 while the broker answers this process"),
    "objects": Gauge("pressroom_objects_up", "1 while object storage answers this process"),
}
_OF_DATABASE = (_JOBS, _DUE, _OLDEST, _ORDERS, _ENDPOINTS, _UPKEEP_LATE, _UPKEEP_FAILED, _OVERDUE)
_NUMBERS_OF_DATABASE = (_WEBHOOK_LAG, _WEBHOOK_FAILING, _LEDGER_FAULTS)


def show_dependencies(answering: Mapping[str, bool]) -> None:
    for name, gauge in _UP.items():
        gauge.set(answering[name])


def show_nothing() -> None:
    """The database says nothing now, and what it said before may be wrong."""
    for gauge in _OF_DATABASE:
        gauge.clear()
    for number in _NUMBERS_OF_DATABASE:
        number.set(math.nan)


def show(figures: DeploymentFigures, overdue: Mapping[str, int]) -> None:
    show_nothing()
    for (lane, status), count in figures.jobs.unfinished.items():
        _JOBS.labels(lane, status).set(count)
    for (lane, kind), count in figures.jobs.due.items():
        _DUE.labels(lane, kind).set(count)
    for gauge, found in (
        (_OLDEST, figures.jobs.oldest),
        (_ORDERS, figures.orders),
        (_UPKEEP_LATE, figures.upkeep.late_seconds),
        (_OVERDUE, overdue),
    ):
        for label, number in found.items():
            gauge.labels(label).set(number)
    for upkeep in figures.upkeep.late_seconds:
        _UPKEEP_FAILED.labels(upkeep).set(upkeep in figures.upkeep.failed)
    webhooks = figures.webhooks
    _ENDPOINTS.labels("failing").set(webhooks.failing)
    _ENDPOINTS.labels("working").set(webhooks.active - webhooks.failing)
    _WEBHOOK_LAG.set(webhooks.late_seconds)
    _WEBHOOK_FAILING.set(webhooks.failing_seconds)
    # Before the first check there is no number to show.
    faults = figures.ledger_faults
    _LEDGER_FAULTS.set(math.nan if faults is None else faults)
