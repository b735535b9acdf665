"""kombu's Redis transport, changed so that it survives the loss of its connection and keeps limits.

A closed channel that must acknowledge a message, or put one back, tries to connect with the
settings of a connection that it no longer has. In kombu 5.7 the ``AttributeError`` of that attempt
ends the worker's main loop, which leaves a process that neither works nor exits. Raised as a
connection error, it is handled like any lost connection, and the sweep sends again the messages
that were not put back.
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
    """Counts what the pool works at, whatever became of its messages.

    kombu counts messages by channel. After each reconnect a queue could fill its limit once more,
    while the pool still works at what the queue took before; and a message whose acknowledgement
    failed would count for ever, so that a hanging broker could leave a queue without room.
    """

    def can_consume(self) -> bool:
        if not self.prefetch_count:
            return True
        queues = self.channel.active_queues
        # A copy made in one step: other threads take their requests off the set.
        requests = [reference() for reference in list(state.reserved_requests.data)]
        under_way = sum(
            request is not None and request.delivery_info["routing_key"] in queues
            for request in requests
        )
        return under_way < self.prefetch_count


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


def install() -> None:
    """Use these transports for the URLs of Redis and of Sentinels from now on."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:{RedisTransport.__name__}"
    TRANSPORT_ALIASES["sentinel"] = f"{__name__}:{SentinelTransport.__name__}"


# Celery takes messages of all queues by one consumer and one limit. When such a limit is used up
# by work that is stuck, the messages of every queue wait. Here each queue has a channel of its own,
# with the queue's limit.


class QueueConsumers:
    """Stands where Celery has its one consumer of tasks, and does what Celery asks of that one."""

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
        found: Callable[..., object] | None = self._consumers[0].on_message
        assert found is not None
        return found

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
        """Celery sets the limit of its one consumer. A queue's own limit stays."""


class QueueQueues(AMQP):  # type: ignore[misc]
    """Makes the consumers of the queues that the process serves."""

    def __init__(self, app: Any, limits: Mapping[Queue, int]) -> None:
        super().__init__(app)
        self._limits = limits

    def TaskConsumer(self, channel: Connection, **options: Any) -> QueueConsumers:  # noqa: N802 - Celery's name
        accept = self.app.conf.accept_content
        return QueueConsumers(self, channel, self._limits, accept=accept, **options)
