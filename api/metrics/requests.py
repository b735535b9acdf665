from functools import cache

from prometheus_client import Counter, Gauge, Histogram

from core.telemetry import spans

REQUESTS = Counter("pressroom_requests", "Answered requests", ["method", "route", "status"])
SECONDS = Histogram(
    "pressroom_request_seconds",
    "Time from the request's first byte to the end of its answer",
    ["method", "route"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60),
)
LOGINS = Counter("pressroom_logins", "Attempts to log in, by how they ended", ["outcome"])
WAITING = Gauge("pressroom_waiting_requests", "Requests that wait for a worker")
REFUSED = Counter("pressroom_bulkhead_refusals", "Callers who got no thread", ["bulkhead"])
CANARY = Gauge(
    "pressroom_canary_seconds", "Time from sending a message to doing its task", ["lane"]
)
REFUSALS = Counter("pressroom_refusals", "Requests that were refused, by the code", ["code"])
BODY_BYTES = Gauge(
    "pressroom_request_body_bytes", "Memory that bodies of requests hold", ["reserve"]
)

PHOTO_LIMIT = Gauge(
    "pressroom_stock_photo_quota", "Requests that the provider grants", ["provider", "window"]
)
PHOTO_REMAINING = Gauge(
    "pressroom_stock_photo_quota_remaining",
    "How many of these it has left, as it said last",
    ["provider", "window"],
)


def observe_request(method: str, route: str, status: int, seconds: float) -> None:
    _count_of(method, route, status).inc()
    _seconds_of(method, route).observe(seconds, spans.ids() or None)


# Cached, because the library takes a lock and turns the labels into text at each lookup.
_count_of = cache(REQUESTS.labels)
_seconds_of = cache(SECONDS.labels)
