"""kombu's Redis transport, changed so that it survives the loss of its connection.

A closed channel that must acknowledge a message, or put one back, tries to connect with the
settings of a connection that it no longer has. In kombu 5.7 the ``AttributeError`` of that attempt
ends the worker's main loop, which leaves a process that neither works nor exits. Raised as a
connection error, it is handled like any lost connection, and the sweep sends again the messages
that were not put back.
"""

from typing import Any

from kombu.transport import TRANSPORT_ALIASES, redis


class RedisChannel(redis.Channel):
    def _connparams(self, asynchronous: bool = False) -> Any:
        if self.connection is None or self.connection.client is None:
            raise ConnectionResetError("the channel is closed")
        return super()._connparams(asynchronous=asynchronous)  # type: ignore[no-untyped-call]


class RedisTransport(redis.Transport):
    Channel = RedisChannel


def install() -> None:
    """Use this transport for ``redis`` URLs from now on."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:{RedisTransport.__name__}"
