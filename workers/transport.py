"""kombu's Redis transport, made fit to survive the loss of its connection.

A closed channel that is asked to acknowledge a message, or to put one back, tries to connect with
the settings of a connection that it no longer has. kombu 5.7 lets the ``AttributeError`` of that
end the worker's main loop, which leaves a process that neither works nor exits. As an error of the
connection it is what everybody there expects, and the sweep sends again what was not put back.
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
    """From now on a ``redis`` URL means this transport."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:{RedisTransport.__name__}"
