"""Request-only work: it lives while callers wait for it, in Redis keys that expire.

There is no job row. The message carries the id of the work. A worker that takes the message finds
under that id the input, the callers that wait, and whether another worker runs the work. Equal
requests have one id, so they share one run:

- ``waiting``: the callers that wait, each until its wait runs out. A caller in a process that was
  killed counts until then, and no longer;
- ``input``: what is asked, until a worker takes it or the last caller has left;
- ``running``: the lease of the worker that runs the work;
- ``told``: the callers that waited when the result came, until they have left. A later caller
  starts a new run;
- ``result``: for callers that missed the notification, until the last of them has left.

The works of a queue that no worker has taken yet stand in one ``line``, and ``owners`` says who
asked first for each. A call that would wait too long there is refused at once. A work leaves the
line with its input, and when a worker takes one that came a second later: its message was lost.

Every step is one script, so that no other step comes between its commands.
"""

from core.queues import Queue

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

# Sends a message, unless a worker runs the work already: it answers this caller too. A work stands
# in the line once. Returns why the caller is refused, and for how long the oldest work has waited;
# or, where the queue is elsewhere and so no message is given, that one must be sent.
#
# A caller who has waited for a while joins again. Work that runs, or has ended, needs no message
# then; what no worker took was lost, or waits in a long queue, where one more does no harm.
JOIN = (
    _PREAMBLE
    + """
local caller, until_gone, payload, message = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local owner, least, most = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local most_of_owner, longest = tonumber(ARGV[8]), tonumber(ARGV[9])
local small, most_bytes_of_owner = tonumber(ARGV[11]), tonumber(ARGV[12])
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
local function holds_too_much()
  if owner == '' or #payload <= small then return false end
  local all, held = redis.call('HGETALL', owners), #payload
  for index = 1, #all, 2 do
    if all[index + 1] == owner then held = held + redis.call('STRLEN', all[index]) end
  end
  return held > most_bytes_of_owner
end
local function error()
  local age, length, own = oldest_age(), redis.call('ZCARD', line), 0
  if holds_too_much() then return {'too_many_of_yours', age} end
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
if is_new and is_first then
  local refused = error()
  if refused then return refused end
end
if callers() == 0 then redis.call('DEL', result) end
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

LEAVE = (
    _PREAMBLE
    + """
redis.call('ZREM', waiting, ARGV[1])
redis.call('ZREM', told, ARGV[1])
if callers() + redis.call('ZCARD', told) == 0 then
  redis.call('DEL', waiting, result)
  drop_input()
end
"""
)

TAKE = (
    _PREAMBLE
    + """
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
)

# Without callers the lease ends in the same step: a new caller finds the lease or sends a message.
ATTEND = (
    _PREAMBLE
    + """
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
)

# Another thread renews, perhaps after the work has ended: only a lease that is still held.
RENEW = (
    _PREAMBLE
    + """
if redis.call('GET', running) == ARGV[1] then redis.call('PEXPIRE', running, ARGV[2]) end
"""
)

# Tells each process once. A caller whose process has no name is announced to all processes.
FINISH = (
    _PREAMBLE
    + """
if redis.call('GET', running) == ARGV[1] then redis.call('DEL', running) end
if callers() == 0 then return end
drop_input()
redis.call('SET', result, ARGV[2], 'EX', ARGV[3])
local told_channels = {}
for _, caller in ipairs(redis.call('ZRANGE', waiting, 0, -1)) do
  local process = string.match(caller, '^(.+)%.')
  local channel = ARGV[4] .. (process and ':' .. process or '')
  if not told_channels[channel] then redis.call('PUBLISH', channel, ARGV[5]) end
  told_channels[channel] = true
end
redis.call('RENAME', waiting, told)
"""
)

# Returns 1 if a message must be sent: another worker does the work from its beginning.
GIVE_BACK = (
    _PREAMBLE
    + """
if redis.call('GET', running) ~= ARGV[1] then return 0 end
redis.call('DEL', running)
if callers() == 0 then return 0 end
redis.call('SET', input, ARGV[2], 'PX', patience())
return 1
"""
)

# The field that carries the trace of the caller to the worker's span.
TRACEPARENT = "traceparent"

_PARTS = ("waiting", "input", "running", "result", "told")


def request_id(queue: Queue, name: str) -> str:
    """Tells the queue, so that every script finds its line."""
    return f"{queue}:{name}"


def keys(request_id: str) -> list[str]:
    queue = request_id.partition(":")[0]
    work = (f"pressroom:{part}:{request_id}" for part in _PARTS)
    return [*work, f"pressroom:line:{queue}", f"pressroom:line_owners:{queue}"]


def result_key(request_id: str) -> str:
    return keys(request_id)[3]


def milliseconds(seconds: float) -> int:
    return max(int(seconds * 1000), 1)
