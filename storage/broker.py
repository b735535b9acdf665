"""Sends tasks to the broker, with a Celery producer that doesn't load the code of the tasks.

A message contains only an id, and the sweep sends lost messages again. The broker therefore only
has to deliver most messages soon, and to count the messages of a queue.
"""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from celery import Celery
from kombu.connection import Connection
from kombu.entity import Queue as BrokerQueue
from kombu.exceptions import OperationalError
from kombu.transport import TRANSPORT_ALIASES, redis
from kombu.utils.url import as_url, parse_url

from core.calls.breaker import Breaker
from core.queues import Queue
from core.settings.store_settings import BrokerSettings
from core.telemetry import spans
from core.telemetry.attributes import SpanAttributes
from storage.redis import client
from storage.task_messages import build_app, queue_name

# A broker delivers a message again when it is not acknowledged within this time, which must be
# above every task's hard time limit: a slow task would run twice. A lost job does not wait for it:
# its lease expires within seconds.
VISIBILITY_TIMEOUT_SECONDS = 7200

_REDIS_OPTIONS = {
    "visibility_timeout": VISIBILITY_TIMEOUT_SECONDS,
    "unacked_restore_limit": 100,
    "socket_keepalive": True,
    "health_check_interval": 10,
    # A consumer's socket waits for messages.
    "socket_timeout": 10,
    "socket_connect_timeout": 2,
}
# A sender keeps a request waiting.
_SENDER_OPTIONS = {
    "socket_timeout": 2,
    "socket_connect_timeout": 1,
    # Without it a refused connection is retried for six seconds, even with `retry=False`.
    "max_retries": 0,
}


class MasterChannel(redis.SentinelChannel):
    connection_class = client.MasterConnection
    connection_class_ssl: Any = client.EncryptedMasterConnection


class MasterTransport(redis.SentinelTransport):
    Channel = MasterChannel


TRANSPORT_ALIASES["sentinel"] = f"{__name__}:{MasterTransport.__name__}"


def celery_app(settings: BrokerSettings) -> Celery:
    """A Celery application with the settings that producer and worker must share."""
    return build_app(**_reached_at(settings.broker))


def _reached_at(url: str) -> dict[str, Any]:
    """Celery's settings for the broker of this URL. A server's certificate is always checked."""
    sentinels = client.parse_sentinels(url)
    options: dict[str, Any] = dict(_REDIS_OPTIONS)
    tls: dict[str, Any] = {}
    if sentinels is None:
        if url.startswith("rediss://"):
            tls = {"ssl_cert_reqs": ssl.CERT_REQUIRED, **parse_url(url).get("ssl", {})}
    else:
        options["master_name"] = sentinels.master_name
        options["sentinel_kwargs"] = client.build_sentinel_options(sentinels)
        if sentinels.is_encrypted:
            tls = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_ca_certs": sentinels.ca_file}
        # The transport may begin with any of these URLs, so the login is in each.
        login = sentinels.user or "", sentinels.password or "", str(sentinels.database)
        url = ";".join(as_url("sentinel", host, port, *login) for host, port in sentinels.hosts)
    return {"broker_url": url, "broker_transport_options": options, "broker_use_ssl": tls or False}


class Broker:
    """Sends messages, and counts the waiting messages of a queue."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._app = celery_app(settings)
        self._app.conf.broker_transport_options |= _SENDER_OPTIONS
        self._breaker = Breaker("the broker", OperationalError)

    def send(
        self, task: str, queue: Queue, kwargs: dict[str, Any], *, task_id: str | None = None
    ) -> bool:
        """Put one message on the queue; return false if the broker can't take it now.

        Then no work is lost, because the sweep sends the message again.
        """

        def put() -> object:
            with (
                self._app.producer_pool.acquire(block=True) as producer,
                _closed_by_failure(producer.connection),
            ):
                return self._app.send_task(
                    task,
                    kwargs=kwargs,
                    queue=queue_name(queue),
                    task_id=task_id,
                    producer=producer,
                    retry=False,
                )

        attributes: SpanAttributes = {"messaging.destination.name": queue_name(queue)}
        with spans.step_span(f"send {task}", "producer", attributes):
            return self._breaker.attempt("broker.send_failed", put, task=task) is not None

    def waiting(self, queue: Queue) -> int | None:
        """Return the number of messages in the queue; ``None`` while the broker is unreachable."""
        return self._breaker.attempt("broker.not_asked", partial(self._count, queue), queue=queue)

    def _count(self, queue: Queue) -> int:
        broker_queue: BrokerQueue = self._app.amqp.queues[queue_name(queue)]
        with self._app.pool.acquire(block=True) as connection, _closed_by_failure(connection):

            def count_messages() -> int:
                # This creates the queue if it doesn't exist.
                declared = broker_queue(connection.default_channel).queue_declare()
                return int(declared.message_count)

            count: int = connection.ensure(connection, count_messages, max_retries=0)()
            return count

    def close(self) -> None:
        self._app.close()


@contextmanager
def _closed_by_failure(connection: Connection) -> Iterator[None]:
    """Close a connection that fails, because a late reply could be taken for the next one."""
    try:
        yield
    except OperationalError:
        connection.collect()
        raise
