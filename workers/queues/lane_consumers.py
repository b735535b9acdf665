"""A consumer for each lane of a worker process, so that one lane's work never keeps another's out.

Celery takes messages of all queues by one consumer and one limit. When such a limit is used up by
work that is stuck, the messages of every queue wait. Here each lane has a channel of its own, with
the lane's limit.
"""

from collections.abc import Callable, Mapping
from typing import Any

from celery.app.amqp import AMQP
from kombu.connection import Connection
from kombu.messaging import Consumer

from core.lanes import Lane
from storage.broker import queue_name


class LaneConsumers:
    """Stands where Celery has its one consumer of tasks, and does what Celery asks of that one."""

    def __init__(
        self, amqp: AMQP, connection: Connection, limits: Mapping[Lane, int], **options: Any
    ) -> None:
        self.queues = [amqp.queues[queue_name(lane)] for lane in limits]
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
        """Celery sets the limit of its one consumer. A lane's own limit stays."""


class LaneQueues(AMQP):  # type: ignore[misc]
    """Makes the consumers of the lanes that the process serves."""

    def __init__(self, app: Any, limits: Mapping[Lane, int]) -> None:
        super().__init__(app)
        self._limits = limits

    def TaskConsumer(self, channel: Connection, **options: Any) -> LaneConsumers:  # noqa: N802 - Celery's name
        accept = self.app.conf.accept_content
        return LaneConsumers(self, channel, self._limits, accept=accept, **options)
