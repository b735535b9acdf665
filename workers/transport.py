"""Adapts kombu's Redis transport and Celery's consumer.

Sometimes a worker acknowledges or requeues a message after the message's channel was closed. In
kombu 5.7, acknowledging on a closed channel raises ``AttributeError``, because the channel has lost
its connection settings. An ``AttributeError`` during an acknowledgement ends the worker's main
loop, so that the process neither works nor exits. With this module's transports, a closed channel
raises a connection error, which kombu handles. If a closed channel could not requeue a message, the
sweep of lost jobs sends the message again.

By default, Celery has one limit of concurrent jobs for all queues, so stuck jobs in one queue could
block all queues of the worker. With ``QueueConsumers``, each queue has its own channel and its own
limit on unacknowledged messages.
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
    """A limit on the number of concurrent jobs of a queue in a worker.

    Kombu's limit on unacknowledged messages per channel doesn't count jobs that started before a
    reconnection, so too many jobs of a queue could run at the same time. If an acknowledgement
    fails, kombu counts the message forever, so a hanging broker could block a queue.
    """

    def can_consume(self) -> bool:
        if not self.prefetch_count:
            return True
        queues = self.channel.active_queues
        # Copy the running requests before counting them, because other threads may remove some.
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
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:{RedisTransport.__name__}"
    TRANSPORT_ALIASES["sentinel"] = f"{__name__}:{SentinelTransport.__name__}"


class QueueConsumers:
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
        """Ignore Celery's common limit for all queues, because each queue has a separate limit."""


class LimitedQueues(AMQP):  # type: ignore[misc]
    def __init__(self, app: Any, limits: Mapping[Queue, int]) -> None:
        super().__init__(app)
        self._limits = limits

    def TaskConsumer(self, channel: Connection, **options: Any) -> QueueConsumers:  # noqa: N802 - Celery's name
        accept = self.app.conf.accept_content
        return QueueConsumers(self, channel, self._limits, accept=accept, **options)
