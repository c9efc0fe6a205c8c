-- One spend from one token bucket. Nearly every bill is this, so here is nothing that it does not need.
-- Arguments: how long the cost takes to come, how long a full bucket does, and the caller's seconds and nanoseconds, if
-- the time is not Redis's own. Both spans are far below 2^53 nanoseconds: what is owed is one double, not a pair.
-- Answers the time, what it found, and a 1 if it is denied.

local found = redis.pcall('GET', KEYS[1])
local time, now_s, now_n = nil, ARGV[3], ARGV[4]
local own_time = not now_s
if own_time then
  time = redis.call('TIME')
  now_s, now_n = time[1] + 0, time[2] * 1000
else
  time, now_s, now_n = {now_s, now_n}, now_s + 0, now_n + 0
end

local owed = 0
if type(found) == 'string' and string.find(found, '^%d+$') then
  local seconds = string.sub(found, 1, -10)
  if seconds == '' then seconds = 0 end
  owed = (seconds - now_s) * 1e9 + (string.sub(found, -9) - now_n)
  if owed < 0 then owed = 0 end
else
  found = false
end
time[3] = found

local fill = ARGV[2] + 0
local after = owed + ARGV[1]
if after > fill then
  time[4] = 1
  if owed <= fill then return time end
  -- A moment too far ahead would else be too far ahead at every retry.
  after = fill
end

local nanos = (now_n + after) % 1e9
local seconds = now_s + (now_n + after - nanos) / 1e9
local full_at = seconds > 0 and string.format('%d%09d', seconds, nanos) or string.format('%d', nanos)
if own_time then
  -- Never sooner than that: the part of a millisecond counts whole.
  redis.call('SET', KEYS[1], full_at, 'PXAT', seconds * 1000 + math.ceil(nanos / 1e6))
else
  -- Time that is not Redis's own may pass slower than that of keys.
  redis.call('SET', KEYS[1], full_at, 'PX', math.max(3600000, math.ceil(after / 1e6)))
end
return time
