"""Sends messages to the broker without importing task code.

Lost messages do no harm, because the sweep of lost jobs sends them again.
"""

import ssl
import time
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
from storage.full_disks import FULL_DISKS, Store, report_redis_error
from storage.redis import client
from storage.task_messages import build_app, queue_name

# The broker redelivers a message that no worker acknowledges within the visibility timeout. The
# visibility timeout must exceed the time limit of every task, because a slow task would otherwise
# run twice. A lost job is retried long before the visibility timeout, because its lease expires
# within seconds.
VISIBILITY_TIMEOUT_SECONDS = 7200

_REDIS_OPTIONS = {
    "visibility_timeout": VISIBILITY_TIMEOUT_SECONDS,
    "unacked_restore_limit": 100,
    "socket_keepalive": True,
    "health_check_interval": 10,
    # The timeouts are long enough for consumers, which wait on the socket for messages.
    "socket_timeout": 10,
    "socket_connect_timeout": 2,
}
# The timeouts for sending messages are short, because an API request waits until the message has
# been sent.
_SENDER_OPTIONS = {
    "socket_timeout": 2,
    "socket_connect_timeout": 1,
    # By default, Celery retries a refused connection for six seconds, even with `retry=False`.
    "max_retries": 0,
}


class MasterChannel(redis.SentinelChannel):
    connection_class = client.MasterConnection
    connection_class_ssl: Any = client.EncryptedMasterConnection


class MasterTransport(redis.SentinelTransport):
    Channel = MasterChannel


TRANSPORT_ALIASES["sentinel"] = f"{__name__}:{MasterTransport.__name__}"


def create_celery_app(settings: BrokerSettings) -> Celery:
    return build_app(**_build_connection_settings(settings.broker))


def _build_connection_settings(url: str) -> dict[str, Any]:
    """Encrypted connections always check the broker's certificate."""
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
        # The URL of every Sentinel contains the credentials for Redis, because the transport may
        # contact any Sentinel first.
        login = sentinels.user or "", sentinels.password or "", str(sentinels.database)
        url = ";".join(as_url("sentinel", host, port, *login) for host, port in sentinels.hosts)
    return {"broker_url": url, "broker_transport_options": options, "broker_use_ssl": tls or False}


class Broker:
    def __init__(self, settings: BrokerSettings) -> None:
        self._app = create_celery_app(settings)
        self._app.conf.broker_transport_options |= _SENDER_OPTIONS
        self._breaker = Breaker("the broker", OperationalError)

    def send(
        self, task: str, queue: Queue, kwargs: dict[str, Any], *, task_id: str | None = None
    ) -> bool:
        """Return whether the broker accepted the message.

        If sending fails, the sweep of lost jobs sends the message again.
        """

        def put() -> object:
            began_at = time.monotonic()
            with (
                self._app.producer_pool.acquire(block=True) as producer,
                _closed_by_failure(producer.connection),
            ):
                sent = self._app.send_task(
                    task,
                    kwargs=kwargs,
                    queue=queue_name(queue),
                    task_id=task_id,
                    producer=producer,
                    retry=False,
                )
            FULL_DISKS.report_write(Store.BROKER, began_at)
            return sent

        attributes: SpanAttributes = {"messaging.destination.name": queue_name(queue)}
        with spans.step_span(f"send {task}", "producer", attributes):
            return self._breaker.attempt("broker.send_failed", put, task=task) is not None

    def count_waiting(self, queue: Queue) -> int | None:
        """Return ``None`` if the broker is unreachable."""
        return self._breaker.attempt("broker.not_asked", partial(self._count, queue), queue=queue)

    def _count(self, queue: Queue) -> int:
        broker_queue: BrokerQueue = self._app.amqp.queues[queue_name(queue)]
        with self._app.pool.acquire(block=True) as connection, _closed_by_failure(connection):

            def count_messages() -> int:
                # Declaring a queue creates the queue if it doesn't exist.
                declared = broker_queue(connection.default_channel).queue_declare()
                return int(declared.message_count)

            count: int = connection.ensure(connection, count_messages, max_retries=0)()
            return count

    def close(self) -> None:
        self._app.close()


@contextmanager
def _closed_by_failure(connection: Connection) -> Iterator[None]:
    """Close a broker connection if the ``with`` block raises an exception.

    If the connection stayed open, the next command could read a late reply to the failed command.
    """
    try:
        yield
    except OperationalError as error:
        report_redis_error(Store.BROKER, error)
        connection.collect()
        raise
