"""Work that lives only as long as somebody waits for it: nothing of it but Redis keys that expire.

There is no job row. The message carries an id, and whoever takes it finds under that id the input,
who waits, and whether another worker is at it. Equal requests have one id, so they share one run:

- ``waiting``: who waits, each until the moment when its patience ends. A process that was killed
  takes nobody off, time does;
- ``input``: what is asked, until a worker takes it or the last one who waits has left;
- ``running``: the lease of the worker that is at it;
- ``told``: who waited when the result came, until they have left. Whoever asks from then on asks
  anew;
- ``result``: for those of them who did not hear it, until the last one has left.

Every step is one script, so that no step falls between two of somebody else's.
"""

import time
from dataclasses import dataclass
from typing import Any

import orjson
import redis
from redis.exceptions import RedisError

from core.logging import get_logger
from storage.redis.notifications import CHANNEL, message, result_topic

log = get_logger(__name__)

RESULT_SECONDS = 60
LEASE_SECONDS = 5.0
RENEW_EVERY_SECONDS = 1.0
# A larger result is only announced: those who wait fetch it, and no other process is sent it.
_MAX_ANNOUNCED_CHARACTERS = 8 * 1024

_PREAMBLE = """
local waiting, input, running, result, told = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function askers()
  redis.call('ZREMRANGEBYSCORE', waiting, '-inf', now)
  return redis.call('ZCARD', waiting)
end
local function patience()
  return redis.call('ZRANGE', waiting, -1, -1, 'WITHSCORES')[2] - now
end
"""

# Whether a message has to be sent: whoever is at it already answers the newcomer too.
_JOIN = """
local asker, until_gone, payload = ARGV[1], tonumber(ARGV[2]), ARGV[3]
if askers() == 0 then redis.call('DEL', result) end
redis.call('ZADD', waiting, now + until_gone, asker)
if redis.call('PTTL', waiting) < until_gone then redis.call('PEXPIRE', waiting, until_gone) end
if redis.call('EXISTS', running) > 0 then return 0 end
if redis.call('PTTL', input) < until_gone then
  redis.call('SET', input, payload, 'PX', until_gone)
end
return 1
"""

_LEAVE = """
redis.call('ZREM', waiting, ARGV[1])
redis.call('ZREM', told, ARGV[1])
if askers() + redis.call('ZCARD', told) == 0 then redis.call('DEL', waiting, input, result) end
"""

_TAKE = """
if askers() == 0 then redis.call('DEL', input) return false end
if not redis.call('SET', running, ARGV[1], 'NX', 'PX', ARGV[2]) then return false end
local payload = redis.call('GETDEL', input)
if not payload then redis.call('DEL', running) return false end
return {payload, patience()}
"""

# Giving up and giving the lease up are one: a newcomer either finds the lease, or sends a message.
_ATTEND = """
local holder = redis.call('GET', running)
if holder and holder ~= ARGV[1] then return 0 end
if askers() == 0 then redis.call('DEL', running, input) return 0 end
redis.call('SET', running, ARGV[1], 'PX', ARGV[2])
return patience()
"""

# From beside the work, which may have ended a moment ago: only what is held still.
_RENEW = """
if redis.call('GET', running) == ARGV[1] then redis.call('PEXPIRE', running, ARGV[2]) end
"""

_FINISH = """
if redis.call('GET', running) == ARGV[1] then redis.call('DEL', running) end
if askers() == 0 then return 0 end
redis.call('DEL', input)
redis.call('SET', result, ARGV[2], 'EX', ARGV[3])
redis.call('RENAME', waiting, told)
redis.call('PUBLISH', ARGV[4], ARGV[5])
return 1
"""


class AllCallersLeft(Exception):
    """Who asked for the work has left; what is left of it would be for nobody."""


_PARTS = ("waiting", "input", "running", "result", "told")


def _keys(request_id: str) -> list[str]:
    return [f"pressroom:{part}:{request_id}" for part in _PARTS]


def result_key(request_id: str) -> str:
    return _keys(request_id)[3]


class RequestWork:
    def __init__(self, client: redis.Redis) -> None:
        self._join, self._leave, self._take, self._attend, self._renew, self._finish = (
            client.register_script(_PREAMBLE + script)
            for script in (_JOIN, _LEAVE, _TAKE, _ATTEND, _RENEW, _FINISH)
        )

    def join(self, request_id: str, asker: str, payload: dict[str, Any], seconds: float) -> bool:
        """Wait for this work too; whether a message must be sent for it."""
        text = orjson.dumps(payload)
        return bool(self._join(_keys(request_id), [asker, _milliseconds(seconds), text]))

    def leave(self, request_id: str, asker: str) -> None:
        """Wait no longer. With the last one goes the work, unless a worker is at it."""
        self._leave(_keys(request_id), [asker])

    def take(self, request_id: str, worker: str) -> "RequestLease | None":
        """What is asked, for the first who takes it; ``None`` when nobody waits for it any more,
        or another worker is at it or has done it."""
        found = self._take(_keys(request_id), [worker, _milliseconds(LEASE_SECONDS)])
        if found is None:
            return None
        text, patience = found
        until = time.monotonic() + patience / 1000
        return RequestLease(orjson.loads(text), self, request_id, worker, until)

    def attend(self, request_id: str, worker: str) -> float:
        """Renew the lease, or take it again; for how many seconds somebody still waits, 0 when
        nobody does."""
        left = self._attend(_keys(request_id), [worker, _milliseconds(LEASE_SECONDS)])
        return float(left) / 1000

    def renew(self, request_id: str, worker: str) -> None:
        """Keep the lease, if it is held still."""
        self._renew(_keys(request_id), [worker, _milliseconds(LEASE_SECONDS)])

    def finish(self, request_id: str, worker: str, result: dict[str, Any]) -> None:
        """Tell the result to those who wait."""
        text = orjson.dumps(result).decode()
        told = text if len(text) <= _MAX_ANNOUNCED_CHARACTERS else ""
        word = message(result_topic(request_id), told)
        self._finish(_keys(request_id), [worker, text, RESULT_SECONDS, CHANNEL, word])


@dataclass(frozen=True)
class RequestLease:
    """What a worker is asked, and whether anybody still wants to know."""

    payload: dict[str, Any]
    work: RequestWork
    request_id: str
    worker: str
    # By the monotonic clock: as long as somebody waited when it was taken.
    until: float

    def seconds_left(self) -> float:
        """How long somebody still waits. Raises ``AllCallersLeft``: ask before whatever costs."""
        try:
            left = self.work.attend(self.request_id, self.worker)
        except RedisError as error:
            log.warning("request.not_attended", reason=type(error).__name__)
            left = self.until - time.monotonic()
        if left <= 0:
            raise AllCallersLeft
        return left

    def renew(self) -> None:
        try:
            self.work.renew(self.request_id, self.worker)
        except RedisError as error:
            # It lasts for a few of these; without it somebody else may begin the same work.
            log.warning("request.lease_not_renewed", reason=type(error).__name__)


def _milliseconds(seconds: float) -> int:
    return max(int(seconds * 1000), 1)
