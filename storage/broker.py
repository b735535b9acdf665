"""The one sender of tasks: a bare Celery producer, which knows queues but no task's code.

Messages are ids, sent again by whoever misses what they cause. So a broker needs no more than to
deliver most of them soon, and to say how many of a lane wait. The rest of this module is about how
each kind of broker is reached.
"""

import base64
import ssl
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any
from urllib.parse import parse_qs

import orjson
from celery import Celery
from kombu.connection import Connection
from kombu.entity import Queue
from kombu.exceptions import OperationalError
from kombu.transport import TRANSPORT_ALIASES, memory, redis
from kombu.utils.url import as_url, parse_url

from core.calls.breaker import Breaker
from core.calls.sentinels import Sentinels
from core.lanes import Lane
from core.settings.store_settings import AMQP_SCHEMES, BrokerSettings
from core.telemetry import spans
from storage.redis.client import (
    EncryptedMasterConnection,
    MasterConnection,
    sentinel_options,
    sentinels_of,
)

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
# Whoever sends to RabbitMQ waits until most of its servers have the message.
_RABBITMQ_OPTIONS = {"confirm_publish": True}
_RABBITMQ_QUEUES = {
    "x-queue-type": "quorum",
    "x-consumer-timeout": VISIBILITY_TIMEOUT_SECONDS * 1000,
}
_RABBITMQ_HEARTBEAT_SECONDS = 10

# A sender keeps a request waiting.
_ANSWER_SECONDS, _CONNECT_SECONDS = 2, 1
_SENDER_OPTIONS = {
    "socket_timeout": _ANSWER_SECONDS,
    "socket_connect_timeout": _CONNECT_SECONDS,
    # The same, as RabbitMQ's client calls them.
    "read_timeout": _ANSWER_SECONDS,
    "write_timeout": _ANSWER_SECONDS,
    "connect_timeout": _CONNECT_SECONDS,
    # Without it a refused connection is retried for six seconds, even with `retry=False`.
    "max_retries": 0,
}
# A connection that was idle while RabbitMQ restarted fails at its first use, and so does one that a
# new pool process closed, which had inherited it. The client of Redis sees to that by itself.
_RABBITMQ_RETRIES = {"max_retries": 1, "interval_start": 0, "interval_step": 0}
_NO_RETRIES = {"max_retries": 0}


class MasterChannel(redis.SentinelChannel):
    connection_class = MasterConnection
    connection_class_ssl: Any = EncryptedMasterConnection


class MasterTransport(redis.SentinelTransport):
    Channel = MasterChannel


TRANSPORT_ALIASES["sentinel"] = f"{__name__}:{MasterTransport.__name__}"


def queue_name(lane: Lane) -> str:
    return f"pressroom.{lane}"


def celery_app(settings: BrokerSettings) -> Celery:
    """A Celery application with the settings that producer and worker must share."""
    return _app(**_reached_at(settings.broker))


def _app(**reached: Any) -> Celery:
    app = Celery("pressroom", set_as_current=False)
    is_rabbitmq = _is_rabbitmq(reached["broker_url"])
    arguments = _RABBITMQ_QUEUES if is_rabbitmq else None
    app.conf.update(
        task_serializer="json",
        accept_content=["json"],
        result_serializer="json",
        task_ignore_result=True,
        task_queues=[
            Queue(queue_name(lane), routing_key=queue_name(lane), queue_arguments=arguments)
            for lane in Lane
        ],
        task_default_queue=queue_name(Lane.UPKEEP),
        # A mistyped queue name is an error, and makes no queue without workers.
        task_create_missing_queues=False,
        broker_connection_retry_on_startup=True,
        broker_heartbeat=_RABBITMQ_HEARTBEAT_SECONDS,
        **reached,
    )
    return app


def _is_rabbitmq(url: str) -> bool:
    return url.partition("://")[0] in AMQP_SCHEMES


def _reached_at(url: str) -> dict[str, Any]:
    """Celery's settings for the broker of this URL. A server's certificate is always checked."""
    address, _, query = url.partition("?")
    tls: dict[str, Any] = {}
    if _is_rabbitmq(url):
        if address.startswith("amqps://"):
            [ca_file] = parse_qs(query).get("ssl_ca_certs", [None])
            # Without a name none is compared; `None` is replaced by that of the URL.
            tls = {"cert_reqs": ssl.CERT_REQUIRED, "ca_certs": ca_file, "server_hostname": None}
        return _settings(address, _RABBITMQ_OPTIONS, tls)
    sentinels = sentinels_of(url)
    if sentinels is None:
        if address.startswith("rediss://"):
            tls = {"ssl_cert_reqs": ssl.CERT_REQUIRED, **parse_url(url).get("ssl", {})}
        return _settings(url, _REDIS_OPTIONS, tls)
    if sentinels.is_encrypted:
        tls = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_ca_certs": sentinels.ca_file}
    known = {
        "master_name": sentinels.master_name,
        "sentinel_kwargs": sentinel_options(sentinels),
    }
    return _settings(_for_each(sentinels), _REDIS_OPTIONS | known, tls)


def _settings(url: str, options: dict[str, Any], tls: dict[str, Any]) -> dict[str, Any]:
    return {
        "broker_url": url,
        "broker_transport_options": dict(options),
        "broker_use_ssl": tls or False,
    }


def _for_each(sentinels: Sentinels) -> str:
    """A URL for each Sentinel. The transport may begin with any, so the login is in each."""
    login = sentinels.user or "", sentinels.password or "", str(sentinels.database)
    return ";".join(as_url("sentinel", host, port, *login) for host, port in sentinels.hosts)


def message(task: str, lane: Lane, kwargs: dict[str, Any], *, task_id: str) -> bytes:
    """What ``Broker.send`` would put on the lane's queue, for a script that puts it there itself.

    The producer takes a tenth of a millisecond and a connection to do the same.
    """
    form = _form(task, lane)
    ids = {"id": task_id, "root_id": task_id, "kwargsrepr": repr(kwargs)}
    tags = {"correlation_id": task_id, "delivery_tag": str(uuid.uuid4())}
    return orjson.dumps(
        {
            **form,
            "body": base64.b64encode(orjson.dumps([[], kwargs, form["body"][2]])).decode(),
            "headers": {**form["headers"], **ids},
            "properties": {**form["properties"], **tags},
        }
    )


@cache
def _form(task: str, lane: Lane) -> dict[str, Any]:
    """A message of this task as Celery's producer makes it, taken from a broker in memory."""
    queue = queue_name(lane)
    with _app(broker_url="memory://") as app:
        app.send_task(task, kwargs={}, queue=queue)
    form: dict[str, Any] = memory.Channel.queues.pop(queue).get_nowait()
    return {**form, "body": orjson.loads(base64.b64decode(form["body"]))}


class Broker:
    """What Pressroom asks of a broker, whichever it is."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._app = celery_app(settings)
        self._app.conf.broker_transport_options |= _SENDER_OPTIONS
        self._breaker = Breaker("the broker", OperationalError)
        self._retries = _RABBITMQ_RETRIES if _is_rabbitmq(settings.broker) else _NO_RETRIES

    def send(
        self,
        task: str,
        lane: Lane,
        kwargs: dict[str, Any],
        *,
        task_id: str | None = None,
    ) -> bool:
        """Put one message on the lane's queue; ``False`` when the broker can't take it now.

        No work is lost by a ``False``: the sweep sends it again.
        """

        def put() -> object:
            with (
                self._app.producer_pool.acquire(block=True) as producer,
                _closed_by_failure(producer.connection),
            ):
                return self._app.send_task(
                    task,
                    kwargs=kwargs,
                    queue=queue_name(lane),
                    task_id=task_id,
                    producer=producer,
                    confirm_timeout=_ANSWER_SECONDS,
                    retry=self._retries["max_retries"] > 0,
                    retry_policy=self._retries,
                )

        about: spans.Attributes = {"messaging.destination.name": queue_name(lane)}
        with spans.span(f"send {task}", "producer", about):
            return self._breaker.attempt("broker.send_failed", put, task=task) is not None

    def waiting(self, lane: Lane) -> int | None:
        """How many messages of the lane no worker has taken; ``None`` while the broker is away."""
        return self._breaker.attempt("broker.not_asked", partial(self._count, lane), lane=lane)

    def _count(self, lane: Lane) -> int:
        queue: Queue = self._app.amqp.queues[queue_name(lane)]
        with self._app.pool.acquire(block=True) as connection, _closed_by_failure(connection):

            def ask() -> int:
                # It makes the queue unless it is there.
                declared = queue(connection.default_channel).queue_declare()
                return int(declared.message_count)

            count: int = connection.ensure(connection, ask, **self._retries)()
            return count

    def close(self) -> None:
        self._app.close()


@contextmanager
def _closed_by_failure(connection: Connection) -> Iterator[None]:
    """Close it if it fails: a late answer would be taken for that to the next question."""
    try:
        yield
    except OperationalError:
        connection.collect()
        raise
