-- One spend from one token bucket. Nearly every bill is this, so here is nothing that it does not need.
-- Arguments: how long the cost takes to come, how long a full bucket does, how long one unit does, or nothing if the
-- numbers came with the request, and the caller's seconds and nanoseconds, if the time is not Redis's own. All spans are
-- far below 2^53 nanoseconds: what is owed is one double, not a pair.
-- Answers the time, what it found, and a 1 if it is denied.

local found = redis.pcall('GET', KEYS[1])
local time, now_s, now_n = nil, ARGV[4], ARGV[5]
local own_time = not now_s
if own_time then
  time = redis.call('TIME')
  now_s, now_n = time[1] + 0, time[2] * 1000
else
  time, now_s, now_n = {now_s, now_n}, now_s + 0, now_n + 0
end

local fill, unit, owed, converted = ARGV[2] + 0, ARGV[3], 0, false
local moment, written_in, overdrawn
if type(found) == 'string' then moment, written_in, overdrawn = string.match(found, '^(%d+) ?(%d*)(!?)$') end
if moment then
  local seconds = string.sub(moment, 1, -10)
  if seconds == '' then seconds = 0 end
  owed = (seconds - now_s) * 1e9 + (string.sub(moment, -9) - now_n)
  if owed <= 0 then owed, overdrawn = 0, '' end
  converted = written_in ~= unit and written_in ~= '' and unit ~= '' and owed > 0
  if converted then
    -- As many units are used as before, and a part of one counts whole.
    owed = overdrawn == '!' and fill or math.ceil(owed / written_in) * unit
    overdrawn = owed > fill and '!' or ''
    owed = math.min(owed, fill)
  end
else
  found = false
end
time[3] = found

local after = owed + ARGV[1]
if after > fill then
  time[4] = 1
  if unit == '' or (owed <= fill and not converted) then return time end
  -- A moment too far ahead would else be too far ahead at every retry, and one of another unit would go on in that unit.
  after = math.min(owed, fill)
end

local nanos = (now_n + after) % 1e9
local seconds = now_s + (now_n + after - nanos) / 1e9
local full_at = seconds > 0 and string.format('%d%09d %s', seconds, nanos, unit) or string.format('%d %s', nanos, unit)
if overdrawn == '!' then full_at = full_at .. '!' end
if own_time then
  -- Never sooner than that: the part of a millisecond counts whole.
  redis.call('SET', KEYS[1], full_at, 'PXAT', seconds * 1000 + math.ceil(nanos / 1e6))
else
  -- Time that is not Redis's own may pass slower than that of keys.
  redis.call('SET', KEYS[1], full_at, 'PX', math.max(3600000, math.ceil(after / 1e6)))
end
return time
