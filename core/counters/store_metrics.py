"""Metrics of this process's calls to Postgres, object storage and Redis."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from prometheus_client import Counter, Gauge, Histogram

SLOW_STATEMENT_SECONDS = 0.1
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)

_SLOW_STATEMENTS = Counter("pressroom_slow_statements", "SQL statements that took more than 100 ms")
CONNECTIONS_IN_USE = Gauge(
    "pressroom_database_connections_in_use",
    "Database connections that this process uses",
    multiprocess_mode="livesum",
)
CONNECTION_LIMIT = Gauge(
    "pressroom_database_connections_limit",
    "Maximum number of database connections of this process",
    multiprocess_mode="livesum",
)
UNRECORDED_REQUESTS = Counter(
    "pressroom_unrecorded_requests",
    "Requests with an API key that owners can't see, because the database was unavailable",
)
_S3_SECONDS = Histogram(
    "pressroom_s3_seconds", "Duration of a call to the object storage", buckets=_SECONDS
)
_S3_FAILURES = Counter("pressroom_s3_failures", "Failed calls to the object storage")
_REDIS_SECONDS = Histogram(
    "pressroom_redis_seconds", "Duration of a call to Redis", buckets=_SECONDS
)
_REDIS_FAILURES = Counter("pressroom_redis_failures", "Failed calls to Redis")


def count_slow_statement(seconds: float) -> None:
    if seconds > SLOW_STATEMENT_SECONDS:
        _SLOW_STATEMENTS.inc()


@contextmanager
def _observe_call(
    seconds: Histogram, failures: Counter, *failure_types: type[Exception]
) -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    except failure_types:
        failures.inc()
        raise
    finally:
        seconds.observe(time.perf_counter() - start)


observe_s3 = partial(_observe_call, _S3_SECONDS, _S3_FAILURES)
observe_redis = partial(_observe_call, _REDIS_SECONDS, _REDIS_FAILURES)
