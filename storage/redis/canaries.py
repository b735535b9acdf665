"""How long each queue takes from the sending of a message to its doing, by Redis' own clock.

A canary is a message that does nothing but say that it has arrived. At most one of a queue is under
way, until it counts as lost.
"""

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
# way), and how many seconds the last one took.
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
redis.call('HSET', hash, queue .. ':took', string.format('%.6f', now - tonumber(ARGV[2])))
redis.call('HDEL', hash, queue .. ':waiting')
redis.call('EXPIRE', hash, ARGV[3])
"""
)


class Canaries:
    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def due(self, queue: str) -> str | None:
        """The moment that the queue's next canary carries, if one must be sent now."""
        limits = (_EVERY_SECONDS, _LOST_AFTER_SECONDS, _KEPT_SECONDS)
        moment: Any = self._client.eval(_SEND, 1, _HASH, queue, *limits)
        return None if moment is None else moment.decode()

    def arrived(self, queue: str, sent: str) -> None:
        self._client.eval(_ARRIVE, 1, _HASH, queue, sent, _KEPT_SECONDS)

    def seconds(self) -> dict[str, float]:
        """For each queue what its last canary took, or how long one has been under way if longer."""
        return self._read()[0]

    def seconds_or_silence(self) -> dict[str, float]:
        """As ``seconds``, but of a queue to which nobody sends any more: the time since the last."""
        found, silent = self._read()
        for queue, seconds in silent.items():
            if _SILENT_AFTER_SECONDS < seconds < _GIVEN_UP_AFTER_SECONDS:
                found[queue] = max(found.get(queue, 0.0), seconds)
        return found

    def _read(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return the seconds that canaries take, and those since each queue's last one was sent."""
        fields: Any = self._client.hgetall(_HASH)
        clock: Any = self._client.time()
        now = clock[0] + clock[1] / 1_000_000
        found: dict[str, float] = {}
        silent: dict[str, float] = {}
        for name, value in fields.items():
            queue, _, what = name.decode().rpartition(":")
            if what == "sent":
                silent[queue] = now - float(value)
            elif what in ("took", "waiting"):
                seconds = float(value) if what == "took" else now - float(value)
                found[queue] = max(found.get(queue, 0.0), seconds)
        return found, silent
