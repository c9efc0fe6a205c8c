-- One rate of one log. Nearly every rule is this, so here is nothing that it does not need, as long as nobody wants the
-- log kept for anything else.
-- Arguments: what the log is kept for, as it stands there; the count; the span, far below 2^53 nanoseconds; whether
-- entries may be taken back; and the caller's seconds and nanoseconds, if the time is not Redis's own.
-- Answers nothing if it allows; else now, a 1, and until when.

local header = redis.pcall('LINDEX', KEYS[1], 0)
if header == ARGV[1] or not header then
  local key, count, span, now_s, now_n = KEYS[1], ARGV[2] + 0, ARGV[3] + 0, ARGV[5], ARGV[6]
  local own_time = not now_s
  if own_time then
    local time = redis.call('TIME')
    now_s, now_n = time[1] + 0, time[2] * 1000
  else
    now_s, now_n = now_s + 0, now_n + 0
  end

  local function read(entry)
    local seconds, nanos = tonumber(string.sub(entry, 1, -10)) or 0, tonumber(string.sub(entry, -9))
    return (now_s - seconds) * 1e9 + (now_n - nanos), seconds, nanos
  end
  local function after(seconds, nanos)
    local left = (nanos + span) % 1e9
    return seconds + (nanos + span - left) / 1e9, left
  end
  local function digits(seconds, nanos)
    return seconds > 0 and string.format('%d%09d', seconds, nanos) or string.format('%d', nanos)
  end

  local entry = header and redis.call('LINDEX', key, -count)
  -- Where there is one entry too few, this is the header.
  if entry and entry ~= header then
    local age, seconds, nanos = read(entry)
    if age < span then return {now_s, now_n, 1, digits(after(seconds, nanos))} end
  end

  local at_s, at_n = now_s, now_n
  if header then
    local age, seconds, nanos = read(redis.call('LINDEX', key, -1))
    if age >= span then
      -- It has been silent: whoever wants it kept longer begins with nothing, too.
      redis.call('DEL', key)
      header = false
    elseif age < 0 then
      -- By a clock that has stepped back this is as new as the newest.
      at_s, at_n = seconds, nanos
    end
  end
  local at = digits(at_s, at_n)
  if header then
    local entries = redis.call('RPUSH', key, at) - 1
    if entries >= count + 8 then
      -- All that go are older than the span, or this would not be allowed: nobody misses them. The header goes with the oldest, and takes the place of the last that goes.
      redis.call('LTRIM', key, 8, -1)
      redis.call('LSET', key, 0, header)
    end
  else
    redis.call('RPUSH', key, ARGV[1], at)
  end
  local seconds, nanos = after(at_s, at_n)
  local millis = seconds * 1000 + math.ceil(nanos / 1e6)
  if own_time then
    redis.call('PEXPIREAT', key, millis)
  else
    -- Time that is not Redis's own may pass slower than that of keys.
    redis.call('PEXPIRE', key, math.max(3600000, millis - now_s * 1000))
  end
  return false
end

-- As a bill like any other.
local own = ARGV
local keep, span_s, span_n = string.match(own[1], '^k(%d+) (%d+) (%d+)$')
local now = own[5] and string.format('%d%09d', own[5], own[6]) or ''
local ARGV = {now, 'whole', 0, '', own[4], 1, '1', 1, 1, own[2], span_s, span_n, keep, span_s, span_n}
