"""Faults of Postgres, Redis, the broker, object storage and the API, with the expected alerts."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import psycopg2

from devstack.harness.proxy import UNAVAILABLE, Proxy
from tests.support.alerts.trouble import Trouble, fault_at_proxy
from tests.support.alerts.watched_site import Site
from tests.support.credits.credits import BALANCE
from tests.support.http.replies import send

_IDLE_CONNECTION_COUNT = 20
# The response to each write while Redis can't write its file.
_DISK_FULL_RESPONSE = b"-MISCONF Errors writing to the AOF file: No space left on device\r\n"
# The response to each command while Redis loads its data after a start.
_LOADING_RESPONSE = b"-LOADING Redis is loading the dataset in memory\r\n"


@contextmanager
def _connections_left_open(site: Site) -> Iterator[None]:
    """Open idle connections until the database accepts no more, as another program might do."""
    [(name, open_now)] = site.stack.query(
        "SELECT current_database(), count(*) FROM pg_stat_activity"
        " WHERE datname = current_database()"
    )
    limit = f"ALTER DATABASE {name} CONNECTION LIMIT"
    site.stack.query(f"{limit} {int(str(open_now)) + _IDLE_CONNECTION_COUNT}")
    try:
        with ExitStack() as opened:
            for _ in range(_IDLE_CONNECTION_COUNT):
                opened.enter_context(closing(psycopg2.connect(site.stack.owner_url)))
            yield
    finally:
        site.stack.query(f"{limit} -1")


STORE_TROUBLES = (
    Trouble("API away", lambda site: site.api.stopped(), "PressroomApiAway"),
    Trouble("Postgres away", fault_at_proxy("postgres", Proxy.refuse), "PressroomDatabaseAway"),
    Trouble("Postgres hung", fault_at_proxy("postgres", Proxy.hang), "PressroomDatabaseAway"),
    Trouble(
        "Postgres slow",
        fault_at_proxy("postgres", lambda proxy: proxy.delay(0.2)),
        "PressroomStatementsSlow",
        calls=lambda _, client: client.get(BALANCE),
    ),
    Trouble("connections left open", _connections_left_open, "PressroomConnectionsUsedUp"),
    Trouble("Redis away", fault_at_proxy("redis", Proxy.refuse), "PressroomRedisAway"),
    Trouble("Redis hung", fault_at_proxy("redis", Proxy.hang), "PressroomRedisAway"),
    Trouble(
        "Redis's disk full",
        fault_at_proxy("redis", lambda proxy: proxy.answer(_DISK_FULL_RESPONSE)),
        "PressroomDiskFull",
        {"store": "redis"},
    ),
    Trouble(
        "Redis answering errors",
        fault_at_proxy("redis", lambda proxy: proxy.answer(_LOADING_RESPONSE)),
        "PressroomRedisFails",
        calls=Site.search,
    ),
    Trouble("broker away", fault_at_proxy("redis", Proxy.refuse), "PressroomBrokerAway"),
    Trouble("S3 away", fault_at_proxy("s3", Proxy.refuse), "PressroomStorageAway"),
    Trouble("S3 hung", fault_at_proxy("s3", Proxy.hang), "PressroomStorageAway"),
    Trouble(
        "S3 answering 503",
        fault_at_proxy("s3", lambda proxy: proxy.answer(UNAVAILABLE)),
        "PressroomStorageFails",
        calls=lambda _, client: send(client, prefer="wait=1"),
    ),
)
