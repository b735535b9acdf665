"""Lua scripts for work that exists only while API callers wait for its result.

A *request* is work that is useless without a waiting API caller, such as a composer call. The state
of a request is stored in Redis keys that expire, and the broker message contains only the request
id. Identical API calls have the same request id, so that a worker does the work only once. A
request has these Redis keys:

- ``waiting``: the waiting callers, each with the time at which the caller stops waiting. A caller
  whose process was killed counts as waiting until the end of its waiting time.
- ``input``: the data that the caller sent. The key is deleted when a worker takes the request or no
  caller waits anymore.
- ``running``: the lease of the worker that runs the request.
- ``told``: the callers that have been notified of the result, until they leave. If a caller repeats
  the call after the notification, a worker does the work again.
- ``result``: the result of the work, for callers that missed the notification. The key is deleted
  when the last caller leaves.

Each queue has a backlog in the key ``line``, which lists the requests that no worker has taken yet.
The key ``line_owners`` maps each request in the backlog to the account that created it. A request
leaves the backlog when its input is deleted. When a worker takes a request, all requests that were
queued at least a second earlier also leave the backlog, because their messages must have been lost.

Every change to a request is made by a single script, because Redis runs scripts atomically.
"""

from core.queues import Queue

# The name of the input field that contains the caller's trace context.
TRACEPARENT = "traceparent"

_REQUEST_KEYS = ("waiting", "input", "running", "result", "told")

_PREAMBLE = """
local waiting, input, running, result, told = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local line, owners = KEYS[6], KEYS[7]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function count_callers()
  redis.call('ZREMRANGEBYSCORE', waiting, '-inf', now)
  return redis.call('ZCARD', waiting)
end
local function leave_line(request)
  redis.call('ZREM', line, request)
  redis.call('HDEL', owners, request)
end
local function drop_input()
  redis.call('DEL', input)
  leave_line(input)
end
local function longest_wait()
  return redis.call('ZRANGE', waiting, -1, -1, 'WITHSCORES')[2] - now
end
"""

# This script adds a caller to a request. The script also sends a broker message, unless a worker is
# already processing the request. A request is in the backlog only once, even if several callers
# wait for its result.
#
# For a refused call, the script returns the reason and the age of the oldest request in the
# backlog. The script returns 1 if the broker isn't this Redis server, so that the API process must
# send the message itself.
#
# A waiting caller runs the script again after a while, because the broker message may have been
# lost. The script sends no second message for a running or finished request. A second message for a
# queued request does no harm.
ADD_CALLER_SCRIPT = (
    _PREAMBLE
    + """
local caller, until_gone, payload, message = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local owner, min_length, max_length = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local max_per_owner, max_age = tonumber(ARGV[8]), tonumber(ARGV[9])
local max_small_bytes, max_bytes_per_owner = tonumber(ARGV[11]), tonumber(ARGV[12])
local is_first, queue = ARGV[10] == '0', KEYS[8]
if not is_first and redis.call('EXISTS', running, result) > 0 then return end
local function oldest_age()
  while true do
    local oldest = redis.call('ZRANGE', line, 0, 0, 'WITHSCORES')
    if not oldest[1] then return 0 end
    if redis.call('EXISTS', oldest[1]) > 0 then return now - oldest[2] end
    leave_line(oldest[1])
  end
end
local function exceeds_bytes_per_owner()
  if owner == '' or #payload <= max_small_bytes then return false end
  local entries, bytes = redis.call('HGETALL', owners), #payload
  for index = 1, #entries, 2 do
    if entries[index + 1] == owner then
      bytes = bytes + redis.call('STRLEN', entries[index])
    end
  end
  return bytes > max_bytes_per_owner
end
local function find_refusal()
  local age, length, owner_length = oldest_age(), redis.call('ZCARD', line), 0
  if exceeds_bytes_per_owner() then return {'too_many_of_yours', age} end
  if length < min_length or (age <= max_age and length < max_per_owner) then return nil end
  if owner ~= '' then
    for _, each in ipairs(redis.call('HVALS', owners)) do
      if each == owner then owner_length = owner_length + 1 end
    end
  end
  if owner_length >= max_per_owner then return {'too_many_of_yours', age} end
  if owner_length == 0 and owner ~= '' then max_age = max_age * 2 end
  if length >= max_length or age > max_age then return {'overloaded', age} end
end
local is_new = redis.call('EXISTS', running, input) == 0
if is_new and is_first then
  local refusal = find_refusal()
  if refusal then return refusal end
end
if count_callers() == 0 then redis.call('DEL', result) end
redis.call('ZADD', waiting, now + until_gone, caller)
if redis.call('PTTL', waiting) < until_gone then redis.call('PEXPIRE', waiting, until_gone) end
if redis.call('EXISTS', running) > 0 then return end
if redis.call('PTTL', input) < until_gone then
  redis.call('SET', input, payload, 'PX', until_gone)
end
redis.call('ZADD', line, 'NX', now, input)
if is_new then redis.call('HSET', owners, input, owner) end
if message == '' then return 1 end
redis.call('LPUSH', queue, message)
"""
)

REMOVE_CALLER_SCRIPT = (
    _PREAMBLE
    + """
redis.call('ZREM', waiting, ARGV[1])
redis.call('ZREM', told, ARGV[1])
if count_callers() + redis.call('ZCARD', told) == 0 then
  redis.call('DEL', waiting, result)
  drop_input()
end
"""
)

TAKE_SCRIPT = (
    _PREAMBLE
    + """
if count_callers() == 0 then drop_input() return false end
if not redis.call('SET', running, ARGV[1], 'NX', 'PX', ARGV[2]) then return false end
local payload, since = redis.call('GET', input), redis.call('ZSCORE', line, input)
drop_input()
if since then
  for _, passed in ipairs(redis.call('ZRANGEBYSCORE', line, '-inf', since - 1000)) do
    leave_line(passed)
  end
end
if not payload then redis.call('DEL', running) return false end
return {payload, longest_wait()}
"""
)

# Renews the lease of a request if a caller waits, and otherwise deletes the lease. The script is
# atomic, so a new caller either finds the renewed lease, or sends a message because the lease is
# gone.
RENEW_FOR_CALLERS_SCRIPT = (
    _PREAMBLE
    + """
local holder = redis.call('GET', running)
if holder and holder ~= ARGV[1] then return 0 end
if count_callers() == 0 then
  redis.call('DEL', running)
  drop_input()
  return 0
end
redis.call('SET', running, ARGV[1], 'PX', ARGV[2])
return longest_wait()
"""
)

# Renews a lease only if the worker still holds it. If the thread that renews leases is late, the
# lease may have expired.
RENEW_SCRIPT = (
    _PREAMBLE
    + """
if redis.call('GET', running) == ARGV[1] then redis.call('PEXPIRE', running, ARGV[2]) end
"""
)

# Stores the result of a request, and sends one notification to each API process that has waiting
# callers. If a caller's process has no name, all API processes are notified.
FINISH_SCRIPT = (
    _PREAMBLE
    + """
if redis.call('GET', running) == ARGV[1] then redis.call('DEL', running) end
if count_callers() == 0 then return end
drop_input()
redis.call('SET', result, ARGV[2], 'EX', ARGV[3])
local notified_channels = {}
for _, caller in ipairs(redis.call('ZRANGE', waiting, 0, -1)) do
  local process = string.match(caller, '^(.+)%.')
  local channel = ARGV[4] .. (process and ':' .. process or '')
  if not notified_channels[channel] then redis.call('PUBLISH', channel, ARGV[5]) end
  notified_channels[channel] = true
end
redis.call('RENAME', waiting, told)
"""
)

# Ends a worker's lease and restores the input, so that another worker can start the request again.
# Returns 1 if callers still wait for the result, so that the worker must send a new message.
RELEASE_SCRIPT = (
    _PREAMBLE
    + """
if redis.call('GET', running) ~= ARGV[1] then return 0 end
redis.call('DEL', running)
if count_callers() == 0 then return 0 end
redis.call('SET', input, ARGV[2], 'PX', longest_wait())
return 1
"""
)


def build_request_id(queue: Queue, name: str) -> str:
    """Return an id with the queue's name, which the Redis scripts use to find the backlog."""
    return f"{queue}:{name}"


def build_keys(request_id: str) -> list[str]:
    queue = request_id.partition(":")[0]
    request_keys = (f"pressroom:{key}:{request_id}" for key in _REQUEST_KEYS)
    return [*request_keys, f"pressroom:line:{queue}", f"pressroom:line_owners:{queue}"]


def build_result_key(request_id: str) -> str:
    return build_keys(request_id)[3]


def to_milliseconds(seconds: float) -> int:
    return max(int(seconds * 1000), 1)
