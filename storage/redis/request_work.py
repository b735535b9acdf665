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

The works that no worker has taken yet stand in one ``line``, and ``owners`` says who asked first
for each. A call that would wait too long there is refused at once. A work leaves the line with its
input, and when a worker takes one that came a second later: its message was lost.

Every step is one script, so that no other step comes between its commands.
"""

import math
import time
from dataclasses import dataclass
from typing import Any

import orjson
import redis
from redis.exceptions import RedisError

from core.logging import get_logger
from core.refusals.requests import QUEUE_OVERLOADED, QUEUE_TOO_MANY_OF_YOURS
from storage.redis.notifications import CHANNEL, message, result_topic

log = get_logger(__name__)

RESULT_SECONDS = 60
LEASE_SECONDS = 5.0
RENEW_EVERY_SECONDS = 1.0

# So few are always let in: their waiting shows whether the line moves.
MIN_WORKS_IN_LINE = 10
MAX_WORKS_IN_LINE = 1_000
# So that the others find room whatever one owner asks.
MAX_WORKS_IN_LINE_OF_AN_OWNER = 500
# When the oldest has waited for so long, an answer is hardly worth its wait any more. An owner who
# has nothing in the line did not fill it, and may wait twice as long.
MAX_LINE_SECONDS = 10.0
_MAX_RETRY_AFTER_SECONDS = 30

# A larger result is only announced, and fetched by the processes whose callers wait for it.
_MAX_ANNOUNCED_CHARACTERS = 8 * 1024

_PREAMBLE = """
local waiting, input, running, result, told = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local line, owners = KEYS[6], KEYS[7]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function callers()
  redis.call('ZREMRANGEBYSCORE', waiting, '-inf', now)
  return redis.call('ZCARD', waiting)
end
local function leave_line(work)
  redis.call('ZREM', line, work)
  redis.call('HDEL', owners, work)
end
local function drop_input()
  redis.call('DEL', input)
  leave_line(input)
end
local function patience()
  return redis.call('ZRANGE', waiting, -1, -1, 'WITHSCORES')[2] - now
end
"""

# Returns whether a message must be sent, or why the caller is refused and for how long. A worker
# that runs the work already answers this caller too, and a work in the line stands there once.
_JOIN = """
local caller, until_gone, payload, owner = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local least, most, most_of_owner = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local longest = tonumber(ARGV[8])
local function oldest_age()
  while true do
    local oldest = redis.call('ZRANGE', line, 0, 0, 'WITHSCORES')
    if not oldest[1] then return 0 end
    if redis.call('EXISTS', oldest[1]) > 0 then return now - oldest[2] end
    leave_line(oldest[1])
  end
end
local function refusal()
  local age, length, own = oldest_age(), redis.call('ZCARD', line), 0
  if length < least or (age <= longest and length < most_of_owner) then return nil end
  if owner ~= '' then
    for _, each in ipairs(redis.call('HVALS', owners)) do
      if each == owner then own = own + 1 end
    end
  end
  if own >= most_of_owner then return {'too_many_of_yours', age} end
  if own == 0 and owner ~= '' then longest = longest * 2 end
  if length >= most or age > longest then return {'overloaded', age} end
end
local is_new = redis.call('EXISTS', running, input) == 0
if is_new then
  local refused = refusal()
  if refused then return refused end
end
if callers() == 0 then redis.call('DEL', result) end
redis.call('ZADD', waiting, now + until_gone, caller)
if redis.call('PTTL', waiting) < until_gone then redis.call('PEXPIRE', waiting, until_gone) end
if redis.call('EXISTS', running) > 0 then return {'joined', 0} end
if redis.call('PTTL', input) < until_gone then
  redis.call('SET', input, payload, 'PX', until_gone)
end
redis.call('ZADD', line, 'NX', now, input)
if is_new then redis.call('HSET', owners, input, owner) end
return {'send', 0}
"""

_LEAVE = """
redis.call('ZREM', waiting, ARGV[1])
redis.call('ZREM', told, ARGV[1])
if callers() + redis.call('ZCARD', told) == 0 then
  redis.call('DEL', waiting, result)
  drop_input()
end
"""

_TAKE = """
if callers() == 0 then drop_input() return false end
if not redis.call('SET', running, ARGV[1], 'NX', 'PX', ARGV[2]) then return false end
local payload, since = redis.call('GET', input), redis.call('ZSCORE', line, input)
drop_input()
if since then
  for _, passed in ipairs(redis.call('ZRANGEBYSCORE', line, '-inf', since - 1000)) do
    leave_line(passed)
  end
end
if not payload then redis.call('DEL', running) return false end
return {payload, patience()}
"""

# Without callers the lease ends in the same step: a new caller finds the lease or sends a message.
_ATTEND = """
local holder = redis.call('GET', running)
if holder and holder ~= ARGV[1] then return 0 end
if callers() == 0 then
  redis.call('DEL', running)
  drop_input()
  return 0
end
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
drop_input()
redis.call('SET', result, ARGV[2], 'EX', ARGV[3])
redis.call('RENAME', waiting, told)
redis.call('PUBLISH', ARGV[4], ARGV[5])
return 1
"""


class AllCallersLeft(Exception):
    """Every caller has left, so the work is worth nothing any more."""


_PARTS = ("waiting", "input", "running", "result", "told")
_LINE = ("pressroom:line", "pressroom:line_owners")


def _keys(request_id: str) -> list[str]:
    return [*(f"pressroom:{part}:{request_id}" for part in _PARTS), *_LINE]


def result_key(request_id: str) -> str:
    return _keys(request_id)[3]


class RequestWork:
    def __init__(self, client: redis.Redis) -> None:
        self._join, self._leave, self._take, self._attend, self._renew, self._finish = (
            client.register_script(_PREAMBLE + script)
            for script in (_JOIN, _LEAVE, _TAKE, _ATTEND, _RENEW, _FINISH)
        )

    def join(
        self,
        request_id: str,
        caller: str,
        payload: dict[str, Any],
        seconds: float,
        *,
        owner_id: int | None = None,
    ) -> bool:
        """Add a caller that waits for so many seconds; returns whether a message must be sent.

        Raises ``queue.overloaded`` and, for the owner who asks for too much,
        ``queue.too_many_of_yours``. Without an owner only the former.
        """
        owner = "" if owner_id is None else str(owner_id)
        works = (MIN_WORKS_IN_LINE, MAX_WORKS_IN_LINE, MAX_WORKS_IN_LINE_OF_AN_OWNER)
        bounds = (*works, _milliseconds(MAX_LINE_SECONDS))
        text = orjson.dumps(payload)
        said = (caller, _milliseconds(seconds), text, owner, *bounds)
        verdict, oldest_age = self._join(_keys(request_id), said)
        # The line moves on by itself in about the time that its oldest work has waited.
        again = min(max(math.ceil(oldest_age / 1000), 1), _MAX_RETRY_AFTER_SECONDS)
        if verdict == b"overloaded":
            raise QUEUE_OVERLOADED(retry_after=again)
        if verdict == b"too_many_of_yours":
            raise QUEUE_TOO_MANY_OF_YOURS(retry_after=again)
        return bool(verdict == b"send")

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
