"""Request-only work: it lives while callers wait for it, in Redis keys that expire.

There is no job row. The message carries the id of the work. A worker that takes the message finds
under that id the input, the callers that wait, and whether another worker runs the work. Equal
requests have one id, so they share one run:

- ``waiting``: the callers that wait, each until its wait runs out. So a caller in a process that
  was killed counts until then, and no longer;
- ``input``: what is asked, until a worker takes it or the last caller has left;
- ``running``: the lease of the worker that runs the work;
- ``told``: the callers that waited when the result came, until they have left. A later caller
  starts a new run;
- ``result``: for callers that missed the notification, until the last of them has left.

Every step is one script, so that no other step comes between its commands.
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
# A larger result is only announced, and fetched by the processes whose callers wait for it.
_MAX_ANNOUNCED_CHARACTERS = 8 * 1024

_PREAMBLE = """
local waiting, input, running, result, told = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function callers()
  redis.call('ZREMRANGEBYSCORE', waiting, '-inf', now)
  return redis.call('ZCARD', waiting)
end
local function patience()
  return redis.call('ZRANGE', waiting, -1, -1, 'WITHSCORES')[2] - now
end
"""

# Returns 1 if a message must be sent. A worker that runs the work already answers this caller too.
_JOIN = """
local caller, until_gone, payload = ARGV[1], tonumber(ARGV[2]), ARGV[3]
if callers() == 0 then redis.call('DEL', result) end
redis.call('ZADD', waiting, now + until_gone, caller)
if redis.call('PTTL', waiting) < until_gone then redis.call('PEXPIRE', waiting, until_gone) end
if redis.call('EXISTS', running) > 0 then return 0 end
if redis.call('PTTL', input) < until_gone then
  redis.call('SET', input, payload, 'PX', until_gone)
end
return 1
"""

# For a caller who has waited for a while. Work that runs, or has ended, needs no message; what no
# worker took was lost, or waits in a long queue, where one more message does no harm.
_JOIN_AGAIN = f"""
if redis.call('EXISTS', running, result) > 0 then return 0 end
{_JOIN}"""

_LEAVE = """
redis.call('ZREM', waiting, ARGV[1])
redis.call('ZREM', told, ARGV[1])
if callers() + redis.call('ZCARD', told) == 0 then redis.call('DEL', waiting, input, result) end
"""

_TAKE = """
if callers() == 0 then redis.call('DEL', input) return false end
if not redis.call('SET', running, ARGV[1], 'NX', 'PX', ARGV[2]) then return false end
local payload = redis.call('GETDEL', input)
if not payload then redis.call('DEL', running) return false end
return {payload, patience()}
"""

# Without callers the lease ends in the same step: a new caller finds the lease or sends a message.
_ATTEND = """
local holder = redis.call('GET', running)
if holder and holder ~= ARGV[1] then return 0 end
if callers() == 0 then redis.call('DEL', running, input) return 0 end
redis.call('SET', running, ARGV[1], 'PX', ARGV[2])
return patience()
"""

# Another thread renews, perhaps after the work has ended: only a lease that is still held.
_RENEW = """
if redis.call('GET', running) == ARGV[1] then redis.call('PEXPIRE', running, ARGV[2]) end
"""

_FINISH = """
if redis.call('GET', running) == ARGV[1] then redis.call('DEL', running) end
if callers() == 0 then return 0 end
redis.call('DEL', input)
redis.call('SET', result, ARGV[2], 'EX', ARGV[3])
redis.call('RENAME', waiting, told)
redis.call('PUBLISH', ARGV[4], ARGV[5])
return 1
"""


class AllCallersLeft(Exception):
    """Every caller has left, so the work is worth nothing any more."""


_PARTS = ("waiting", "input", "running", "result", "told")


def _keys(request_id: str) -> list[str]:
    return [f"pressroom:{part}:{request_id}" for part in _PARTS]


def result_key(request_id: str) -> str:
    return _keys(request_id)[3]


class RequestWork:
    def __init__(self, client: redis.Redis) -> None:
        self._join, self._join_again, self._leave, self._take = (
            client.register_script(_PREAMBLE + script)
            for script in (_JOIN, _JOIN_AGAIN, _LEAVE, _TAKE)
        )
        self._attend, self._renew, self._finish = (
            client.register_script(_PREAMBLE + script) for script in (_ATTEND, _RENEW, _FINISH)
        )

    def join(
        self,
        request_id: str,
        caller: str,
        payload: dict[str, Any],
        seconds: float,
        *,
        again: bool = False,
    ) -> bool:
        """Add a caller that waits for so many seconds; returns whether a message must be sent.

        ``again``: a caller who waits already. Whatever Redis lost of the work is there again then.
        """
        text = orjson.dumps(payload)
        join = self._join_again if again else self._join
        return bool(join(_keys(request_id), [caller, _milliseconds(seconds), text]))

    def leave(self, request_id: str, caller: str) -> None:
        """Take a caller off. The last one takes the work along, unless a worker runs it."""
        self._leave(_keys(request_id), [caller])

    def take(self, request_id: str, worker: str) -> "RequestLease | None":
        """Take the work; ``None`` when no caller waits for it, or another worker has taken it."""
        found = self._take(_keys(request_id), [worker, _milliseconds(LEASE_SECONDS)])
        if found is None:
            return None
        text, patience = found
        until = time.monotonic() + patience / 1000
        return RequestLease(orjson.loads(text), self, request_id, worker, until)

    def attend(self, request_id: str, worker: str) -> float:
        """Renew the lease, or take it again.

        Returns for how many seconds the most patient caller still waits: 0 when none does, or
        another worker has the lease.
        """
        left = self._attend(_keys(request_id), [worker, _milliseconds(LEASE_SECONDS)])
        return float(left) / 1000

    def renew(self, request_id: str, worker: str) -> None:
        """Renew the lease if this worker still holds it."""
        self._renew(_keys(request_id), [worker, _milliseconds(LEASE_SECONDS)])

    def finish(self, request_id: str, worker: str, result: dict[str, Any]) -> None:
        """Give the result to the callers that wait."""
        text = orjson.dumps(result).decode()
        told = text if len(text) <= _MAX_ANNOUNCED_CHARACTERS else ""
        word = message(result_topic(request_id), told)
        self._finish(_keys(request_id), [worker, text, RESULT_SECONDS, CHANNEL, word])


@dataclass(frozen=True)
class RequestLease:
    """A worker's hold on request-only work, with its input."""

    payload: dict[str, Any]
    work: RequestWork
    request_id: str
    worker: str
    # When the most patient caller stops waiting, by the monotonic clock; as known at the taking.
    until: float

    def seconds_left(self) -> float:
        """How long a caller still waits; raises ``AllCallersLeft``. Ask before each costly step."""
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
            # A lease outlasts a few lost renewals; after it another worker may begin the work.
            log.warning("request.lease_not_renewed", reason=type(error).__name__)


def _milliseconds(seconds: float) -> int:
    return max(int(seconds * 1000), 1)
