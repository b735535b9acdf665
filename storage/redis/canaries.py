"""How long each queue takes from the sending of a message to its doing, by Redis' own clock.

A canary is a message that does nothing but say that it has arrived. At most one of a queue is under
way, until it counts as lost.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import redis

_HASH = "pressroom:canaries"
_EVERY_SECONDS = 10
# This is well before callers are refused for what a queue takes: a server that was lost takes a
# canary along, which says nothing of the queue.
_LOST_AFTER_SECONDS = 15
# A queue whose workers have gone is forgotten.
_KEPT_SECONDS = 600
# Workers send to their own queues alone, and the slowest of them oftener than that: such a queue
# has none that works. After a day it is taken for one that is meant to have none.
_SILENT_AFTER_SECONDS = 30
_GIVEN_UP_AFTER_SECONDS = 86_400

# Fields of a queue: when its last canary was sent, since when none has arrived (while one is under
# way), how many seconds the last one took, and the version of the worker that took it.
_PREAMBLE = """
local hash, queue = KEYS[1], ARGV[1]
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
"""

# Returns the moment of sending if a canary must be sent.
_SEND = (
    _PREAMBLE
    + """
local sent = tonumber(redis.call('HGET', hash, queue .. ':sent') or 0)
local is_under_way = redis.call('HEXISTS', hash, queue .. ':waiting') == 1
if math.abs(now - sent) < tonumber(is_under_way and ARGV[3] or ARGV[2]) then return false end
local moment = string.format('%.6f', now)
redis.call('HSET', hash, queue .. ':sent', moment)
redis.call('HSETNX', hash, queue .. ':waiting', moment)
redis.call('EXPIRE', hash, ARGV[4])
return moment
"""
)

_ARRIVE = (
    _PREAMBLE
    + """
local took = string.format('%.6f', now - tonumber(ARGV[2]))
redis.call('HSET', hash, queue .. ':took', took, queue .. ':version', ARGV[4])
redis.call('HDEL', hash, queue .. ':waiting')
redis.call('EXPIRE', hash, ARGV[3])
"""
)


@dataclass
class QueueAge:
    """How a queue does, by its canaries.

    Attributes:
        seconds: what the last one took, or for how long one has been under way if longer.
        silence: seconds since the last one was sent.
        version: the release of the worker that took the last one; empty before the first.
    """

    seconds: float = 0.0
    silence: float = 0.0
    version: str = ""

    @property
    def is_silent(self) -> bool:
        """Say whether the queue's workers have gone."""
        return self.silence > _SILENT_AFTER_SECONDS


class Canaries:
    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def due(self, queue: str) -> str | None:
        """The moment that the queue's next canary carries, if one must be sent now."""
        limits = (_EVERY_SECONDS, _LOST_AFTER_SECONDS, _KEPT_SECONDS)
        moment: Any = self._client.eval(_SEND, 1, _HASH, queue, *limits)
        return None if moment is None else moment.decode()

    def arrived(self, queue: str, sent: str, version: str) -> None:
        self._client.eval(_ARRIVE, 1, _HASH, queue, sent, _KEPT_SECONDS, version)

    def ages(self) -> dict[str, QueueAge]:
        """Return how each queue does to which canaries were sent lately."""
        fields: Any = self._client.hgetall(_HASH)
        clock: Any = self._client.time()
        now = clock[0] + clock[1] / 1_000_000
        found: defaultdict[str, QueueAge] = defaultdict(QueueAge)
        for name, value in fields.items():
            queue, _, what = name.decode().rpartition(":")
            age = found[queue]
            if what == "sent":
                age.silence = now - float(value)
            elif what == "version":
                age.version = value.decode()
            else:
                seconds = float(value) if what == "took" else now - float(value)
                age.seconds = max(age.seconds, seconds)
        return dict(found)

    def seconds(self) -> dict[str, float]:
        """Return of each queue what its last canary took, or how long one has been under way."""
        return {queue: age.seconds for queue, age in self.ages().items()}

    def seconds_or_silence(self) -> dict[str, float]:
        """Return ``seconds``, but for a queue without senders the time since the last one."""
        return {
            queue: max(age.seconds, age.silence)
            if age.is_silent and age.silence < _GIVEN_UP_AFTER_SECONDS
            else age.seconds
            for queue, age in self.ages().items()
        }
