"""kombu's Redis transport, changed so that it survives the loss of its connection and keeps limits.

A closed channel that must acknowledge a message, or put one back, tries to connect with the
settings of a connection that it no longer has. In kombu 5.7 the ``AttributeError`` of that attempt
ends the worker's main loop, which leaves a process that neither works nor exits. Raised as a
connection error, it is handled like any lost connection, and the sweep sends again the messages
that were not put back.
"""

from typing import Any

from celery.worker import state
from kombu.transport import TRANSPORT_ALIASES, redis

from storage.broker import MasterChannel, MasterTransport


class LimitedQoS(redis.QoS):
    """Counts what the pool works at, whatever became of its messages.

    kombu counts messages by channel. After each reconnect a lane could fill its limit once more,
    while the pool still works at what the lane took before; and a message whose acknowledgement
    failed would count for ever, so that a hanging broker could leave a lane without room.
    """

    def can_consume(self) -> bool:
        return not self.prefetch_count or self._under_way() < self.prefetch_count

    def _under_way(self) -> int:
        queues = self.channel.active_queues
        # A copy made in one step: other threads take their requests off the set.
        requests = [reference() for reference in list(state.reserved_requests.data)]
        return sum(
            request is not None and request.delivery_info["routing_key"] in queues
            for request in requests
        )


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
