"""Changes kombu's Redis transport and Celery's consumer for safe limits and reconnections.

A closed channel may have to acknowledge a message or put one back. It then connects with the
settings of a connection that it no longer has. In kombu 5.7 this raises ``AttributeError``, which
ends the worker's main loop: the process neither works nor exits. Here it raises a connection error,
which kombu handles like any lost connection. The sweep sends the messages again that were not put
back.

Celery fetches the messages of all queues with one consumer and one limit. If stuck work uses up
this limit, the messages of every queue wait. Here each queue has its own channel, with the queue's
limit.
"""

from collections.abc import Callable, Mapping
from typing import Any

from celery.app.amqp import AMQP
from celery.worker import state
from kombu.connection import Connection
from kombu.messaging import Consumer
from kombu.transport import TRANSPORT_ALIASES, redis

from core.queues import Queue
from storage.broker import MasterChannel, MasterTransport
from storage.task_messages import queue_name


class LimitedQoS(redis.QoS):
    """Counts the work of the pool instead of the messages of a channel.

    kombu counts messages per channel. After a reconnect a queue could fill its limit again, while
    the pool is still busy with earlier messages of the queue. If an acknowledgement failed, its
    message would count forever, so that a hanging broker could leave a queue without room.
    """

    def can_consume(self) -> bool:
        if not self.prefetch_count:
            return True
        queues = self.channel.active_queues
        # Copy the set in one step, because other threads remove their requests from it.
        requests = [reference() for reference in list(state.reserved_requests.data)]
        active = sum(
            request is not None and request.delivery_info["routing_key"] in queues
            for request in requests
        )
        return active < self.prefetch_count


class _SurvivingChannel:
    QoS = LimitedQoS
    connection: Any

    def _connparams(self, asynchronous: bool = False) -> Any:
        if self.connection is None or self.connection.client is None:
            raise ConnectionResetError("the channel is closed")
        return super()._connparams(asynchronous=asynchronous)  # type: ignore[misc]


class RedisChannel(_SurvivingChannel, redis.Channel):
    pass


class RedisTransport(redis.Transport):
    Channel = RedisChannel


class SentinelChannel(_SurvivingChannel, MasterChannel):
    pass


class SentinelTransport(MasterTransport):
    Channel = SentinelChannel


def install_transports() -> None:
    """Use these transports for the URLs of Redis and Sentinel from now on."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:{RedisTransport.__name__}"
    TRANSPORT_ALIASES["sentinel"] = f"{__name__}:{SentinelTransport.__name__}"


class QueueConsumers:
    """Replaces Celery's single consumer of tasks by one consumer per queue."""

    def __init__(
        self, amqp: AMQP, connection: Connection, limits: Mapping[Queue, int], **options: Any
    ) -> None:
        self.queues = [amqp.queues[queue_name(queue)] for queue in limits]
        self._consumers: list[Consumer] = []
        for queue, limit in zip(self.queues, limits.values(), strict=True):
            channel = connection.channel()
            channel.basic_qos(0, limit, False)
            self._consumers.append(amqp.Consumer(channel, queues=[queue], **options))

    @property
    def on_message(self) -> Callable[..., object]:
        receive: Callable[..., object] | None = self._consumers[0].on_message
        assert receive is not None
        return receive

    @on_message.setter
    def on_message(self, receive: Callable[..., object]) -> None:
        for consumer in self._consumers:
            consumer.on_message = receive

    def consume(self) -> None:
        for consumer in self._consumers:
            consumer.consume()

    def cancel(self) -> None:
        for consumer in self._consumers:
            consumer.cancel()

    def close(self) -> None:
        self.cancel()

    def qos(self, **_: Any) -> None:
        """Ignore the limit that Celery sets for its single consumer. Each queue keeps its limit."""


class QueueQueues(AMQP):  # type: ignore[misc]
    """Creates the consumers of the queues that the process serves."""

    def __init__(self, app: Any, limits: Mapping[Queue, int]) -> None:
        super().__init__(app)
        self._limits = limits

    def TaskConsumer(self, channel: Connection, **options: Any) -> QueueConsumers:  # noqa: N802 - Celery's name
        accept = self.app.conf.accept_content
        return QueueConsumers(self, channel, self._limits, accept=accept, **options)
