"""Postgres, Redis, the broker and object storage, and the API itself."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import psycopg2

from devstack.harness.proxy import UNAVAILABLE, Proxy
from tests.support.alerts.trouble import Trouble, of_proxy
from tests.support.alerts.watched_site import Site
from tests.support.credits.credits import BALANCE
from tests.support.http.replies import send

_LEFT_OPEN = 20
# What it says to each command while it reads what it had stored, after a start.
_LOADING = b"-LOADING Redis is loading the dataset in memory\r\n"


@contextmanager
def _connections_left_open(site: Site) -> Iterator[None]:
    """By another program, at a server that has room for a few more than ours."""
    [(name, open_now)] = site.stack.query(
        "SELECT current_database(), count(*) FROM pg_stat_activity"
        " WHERE datname = current_database()"
    )
    limit = f"ALTER DATABASE {name} CONNECTION LIMIT"
    site.stack.query(f"{limit} {int(str(open_now)) + _LEFT_OPEN}")
    try:
        with ExitStack() as opened:
            for _ in range(_LEFT_OPEN):
                opened.enter_context(closing(psycopg2.connect(site.stack.owner_url)))
            yield
    finally:
        site.stack.query(f"{limit} -1")


STORE_TROUBLES = (
    Trouble("API away", lambda site: site.api.away(), "PressroomApiAway"),
    Trouble("Postgres away", of_proxy("postgres", Proxy.refuse), "PressroomDatabaseAway"),
    Trouble("Postgres hung", of_proxy("postgres", Proxy.hang), "PressroomDatabaseAway"),
    Trouble(
        "Postgres slow",
        of_proxy("postgres", lambda proxy: proxy.delay(0.2)),
        "PressroomStatementsSlow",
        calls=lambda _, client: client.get(BALANCE),
    ),
    Trouble("connections left open", _connections_left_open, "PressroomConnectionsUsedUp"),
    Trouble("Redis away", of_proxy("redis", Proxy.refuse), "PressroomRedisAway"),
    Trouble("Redis hung", of_proxy("redis", Proxy.hang), "PressroomRedisAway"),
    Trouble(
        "Redis answering errors",
        of_proxy("redis", lambda proxy: proxy.answer(_LOADING)),
        "PressroomRedisFails",
        calls=Site.search,
    ),
    Trouble("broker away", of_proxy("redis", Proxy.refuse), "PressroomBrokerAway"),
    Trouble("S3 away", of_proxy("s3", Proxy.refuse), "PressroomStorageAway"),
    Trouble("S3 hung", of_proxy("s3", Proxy.hang), "PressroomStorageAway"),
    Trouble(
        "S3 answering 503",
        of_proxy("s3", lambda proxy: proxy.answer(UNAVAILABLE)),
        "PressroomStorageFails",
        calls=lambda _, client: send(client, prefer="wait=1"),
    ),
)
