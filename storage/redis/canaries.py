"""Measures how long each queue takes to deliver a message to a worker.

Workers regularly send a *canary* through each queue. A canary is a message that only records its
own arrival. At most one canary per queue is in transit at a time. All times are read from the clock
of Redis, because the workers' clocks may differ.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import redis

_CANARIES_KEY = "pressroom:canaries"
_INTERVAL_SECONDS = 10
# A canary can be lost when a worker crashes. A lost canary must be replaced before the queue seems
# so slow that the API refuses calls.
_LOST_AFTER_SECONDS = 15
# How long the measurements of a queue without workers are kept.
_RETENTION_SECONDS = 600
# After 30 seconds without a new canary, a queue counts as having no working worker. After a day
# without canaries, a queue counts as unused, because an operator may leave a queue without workers
# on purpose.
_SILENT_AFTER_SECONDS = 30
_UNUSED_AFTER_SECONDS = 86_400

# The canaries are stored in a Redis hash with four fields per queue. ``sent`` is the send time of
# the last canary. ``waiting`` is the send time of the oldest canary in transit, or missing if no
# canary is in transit. ``took`` is how many seconds the last canary was in transit. ``version`` is
# the release of the worker that received the last canary.
_PREAMBLE = """
local hash, queue = KEYS[1], ARGV[1]
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
"""

# Returns the send time for a new canary, or false if no canary is due.
_START_SCRIPT = (
    _PREAMBLE
    + """
local sent = tonumber(redis.call('HGET', hash, queue .. ':sent') or 0)
local is_in_transit = redis.call('HEXISTS', hash, queue .. ':waiting') == 1
if math.abs(now - sent) < tonumber(is_in_transit and ARGV[3] or ARGV[2]) then return false end
local moment = string.format('%.6f', now)
redis.call('HSET', hash, queue .. ':sent', moment)
redis.call('HSETNX', hash, queue .. ':waiting', moment)
redis.call('EXPIRE', hash, ARGV[4])
return moment
"""
)

# A canary that was answered while it was in transit isn't measured again when it arrives. Without a
# send time in ``ARGV[2]``, the script answers the oldest canary in transit.
_ARRIVAL_SCRIPT = (
    _PREAMBLE
    + """
local waiting = redis.call('HGET', hash, queue .. ':waiting')
if not waiting then return end
local sent = ARGV[2] == '' and waiting or ARGV[2]
local took = string.format('%.6f', now - tonumber(sent))
redis.call('HSET', hash, queue .. ':took', took, queue .. ':version', ARGV[4])
redis.call('HDEL', hash, queue .. ':waiting')
redis.call('EXPIRE', hash, ARGV[3])
"""
)


@dataclass
class QueueAge:
    """The delay of a queue.

    Attributes:
        delay_seconds: how long the last canary was in transit, or how long the current canary has
            been in transit, if that is longer.
        silent_seconds: how long ago the last canary was sent.
    """

    delay_seconds: float = 0.0
    silent_seconds: float = 0.0
    version: str = ""

    @property
    def is_silent(self) -> bool:
        return self.silent_seconds > _SILENT_AFTER_SECONDS


class Canaries:
    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def start_if_due(self, queue: str) -> str | None:
        """Return the send time of a new canary, or ``None`` if no canary is due."""
        limits = (_INTERVAL_SECONDS, _LOST_AFTER_SECONDS, _RETENTION_SECONDS)
        moment: Any = self._client.eval(_START_SCRIPT, 1, _CANARIES_KEY, queue, *limits)
        return None if moment is None else moment.decode()

    def record_arrival(self, queue: str, sent: str, version: str) -> None:
        self._client.eval(
            _ARRIVAL_SCRIPT, 1, _CANARIES_KEY, queue, sent, _RETENTION_SECONDS, version
        )

    def answer(self, queue: str, version: str) -> None:
        """Record that a worker is about to take the next job without a message.

        The worker's process runs a long job in turns. A canary in transit would wait for the end of
        the long job, but other jobs wait only for its turn.
        """
        self.record_arrival(queue, "", version)

    def read_ages(self) -> dict[str, QueueAge]:
        fields: Any = self._client.hgetall(_CANARIES_KEY)
        clock: Any = self._client.time()
        now = clock[0] + clock[1] / 1_000_000
        ages: defaultdict[str, QueueAge] = defaultdict(QueueAge)
        for name, value in fields.items():
            queue, _, field = name.decode().rpartition(":")
            age = ages[queue]
            if field == "sent":
                age.silent_seconds = now - float(value)
            elif field == "version":
                age.version = value.decode()
            else:
                seconds = float(value) if field == "took" else now - float(value)
                age.delay_seconds = max(age.delay_seconds, seconds)
        return dict(ages)

    def read_delays(self) -> dict[str, float]:
        return {queue: age.delay_seconds for queue, age in self.read_ages().items()}

    def read_delays_or_silence(self) -> dict[str, float]:
        """Return how many seconds each queue takes to deliver a message to a worker.

        For a queue without workers, return the queue's delay or the time since its last canary,
        whichever is longer.
        """
        return {
            queue: max(age.delay_seconds, age.silent_seconds)
            if age.is_silent and age.silent_seconds < _UNUSED_AFTER_SECONDS
            else age.delay_seconds
            for queue, age in self.read_ages().items()
        }
