"""How long each lane takes from the sending of a message to its doing, by Redis' own clock.

A canary is a message that does nothing but say that it has arrived. At most one of a lane is under
way, until it counts as lost.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import redis

_HASH = "pressroom:canaries"
_EVERY_SECONDS = 10
# This is well before callers are refused for what a lane takes: a server that was lost takes a
# canary along, which says nothing of the lane.
_LOST_AFTER_SECONDS = 15
# A lane whose workers have gone is forgotten.
_KEPT_SECONDS = 600
# Workers send to their own lanes alone, and the slowest of them oftener than that: such a lane has
# none that works. After a day it is taken for one that is meant to have none.
_SILENT_AFTER_SECONDS = 30
_GIVEN_UP_AFTER_SECONDS = 86_400

# Fields of a lane: when its last canary was sent, since when none has arrived (while one is under
# way), how many seconds the last one took, and the version of the worker that took it.
_PREAMBLE = """
local hash, lane = KEYS[1], ARGV[1]
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
"""

# Returns the moment of sending if a canary must be sent.
_SEND = (
    _PREAMBLE
    + """
local sent = tonumber(redis.call('HGET', hash, lane .. ':sent') or 0)
local is_under_way = redis.call('HEXISTS', hash, lane .. ':waiting') == 1
if math.abs(now - sent) < tonumber(is_under_way and ARGV[3] or ARGV[2]) then return false end
local moment = string.format('%.6f', now)
redis.call('HSET', hash, lane .. ':sent', moment)
redis.call('HSETNX', hash, lane .. ':waiting', moment)
redis.call('EXPIRE', hash, ARGV[4])
return moment
"""
)

_ARRIVE = (
    _PREAMBLE
    + """
local took = string.format('%.6f', now - tonumber(ARGV[2]))
redis.call('HSET', hash, lane .. ':took', took, lane .. ':version', ARGV[4])
redis.call('HDEL', hash, lane .. ':waiting')
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

    def due(self, lane: str) -> str | None:
        """The moment that the lane's next canary carries, if one must be sent now."""
        limits = (_EVERY_SECONDS, _LOST_AFTER_SECONDS, _KEPT_SECONDS)
        moment: Any = self._client.eval(_SEND, 1, _HASH, lane, *limits)
        return None if moment is None else moment.decode()

    def arrived(self, lane: str, sent: str, version: str) -> None:
        self._client.eval(_ARRIVE, 1, _HASH, lane, sent, _KEPT_SECONDS, version)

    def ages(self) -> dict[str, QueueAge]:
        """Return how each queue does to which canaries were sent lately."""
        fields: Any = self._client.hgetall(_HASH)
        clock: Any = self._client.time()
        now = clock[0] + clock[1] / 1_000_000
        found: defaultdict[str, QueueAge] = defaultdict(QueueAge)
        for name, value in fields.items():
            lane, _, what = name.decode().rpartition(":")
            age = found[lane]
            if what == "sent":
                age.silence = now - float(value)
            elif what == "version":
                age.version = value.decode()
            else:
                seconds = float(value) if what == "took" else now - float(value)
                age.seconds = max(age.seconds, seconds)
        return dict(found)

    def seconds(self) -> dict[str, float]:
        """For each lane what its last canary took, or how long one has been under way if longer."""
        return {lane: age.seconds for lane, age in self.ages().items()}

    def seconds_or_silence(self) -> dict[str, float]:
        """As ``seconds``, but of a lane to which nobody sends any more: the time since the last."""
        return {
            lane: max(age.seconds, age.silence)
            if age.is_silent and age.silence < _GIVEN_UP_AFTER_SECONDS
            else age.seconds
            for lane, age in self.ages().items()
        }
