-- The log of a rule is a list. Its first element is the header, `k10 3600 0`: the number of entries that are kept, and
-- the seconds and nanoseconds for which they are, the most that any rule has asked for. The newest entry is the last.

-- Entries are trimmed in groups of this many.
local SPARE = 8

-- An entry older than this many seconds is never removed by an undo.
local REVOCABLE = 1

-- An expired log, or a key of another type, counts as missing.
local function read_log(key)
  local header = redis.pcall('LINDEX', key, 0)
  local log = {key = key, there = header, keep = 0, span_s = 0, span_n = 0}
  if type(header) ~= 'string' then return log end
  local keep, span_s, span_n = string.match(header, '^k(%d+) (%d+) (%d+)$')
  local newest = redis.call('LINDEX', key, -1)
  if not keep or not is_number(newest) then return log end
  local newest_s, newest_n = split(newest)
  local silent_s, silent_n = plus(newest_s, newest_n, span_s + 0, span_n + 0)
  if less(now_s, now_n, silent_s, silent_n) then
    log.header, log.keep, log.span_s, log.span_n = header, keep + 0, span_s + 0, span_n + 0
    log.newest_s, log.newest_n, log.silent_s, log.silent_n = newest_s, newest_n, silent_s, silent_n
  end
  return log
end

-- Returns the moment until which this many entries in a span are reached.
local function reached_until(log, count, span_s, span_n)
  if count == 0 then return 18446744073, 709551615 end
  local entry = count <= log.keep and redis.call('LINDEX', log.key, -count)
  -- If there is one entry too few, this is the header.
  if not is_number(entry) then return 0, 0 end
  local entry_s, entry_n = split(entry)
  entry_s, entry_n = plus(entry_s, entry_n, span_s, span_n)
  return least(entry_s, entry_n, log.silent_s, log.silent_n)
end

local function is_settled(entry)
  local entry_s, entry_n = split(entry)
  return not less(now_s, now_n, plus(entry_s, entry_n, REVOCABLE, 0))
end

-- Enters the request, and returns the moment of its entry. If `revocable`, others may still take their entries back:
-- then an entry is dropped only if as many as are kept can no longer be taken back.
local function enter(log, keep, span_s, span_n, revocable)
  keep = math.max(keep, log.keep)
  if keep == 0 then return false end
  if less(span_s, span_n, log.span_s, log.span_n) then span_s, span_n = log.span_s, log.span_n end
  local header = string.format('k%d %d %d', keep, span_s, span_n)
  local at_s, at_n = now_s, now_n
  -- If the clock stepped back, the entry is as new as the newest.
  if log.header and less(now_s, now_n, log.newest_s, log.newest_n) then at_s, at_n = log.newest_s, log.newest_n end
  local at = digits(at_s, at_n)
  if log.header then
    -- A larger number of kept entries must not reveal entries beyond the old bound.
    if keep > log.keep and not revocable then redis.call('LTRIM', log.key, -1 - log.keep, -1) end
    local entries = redis.call('RPUSH', log.key, at) - 1
    local trims = entries >= keep + SPARE
      and (not revocable or is_settled(redis.call('LINDEX', log.key, keep + SPARE)))
    -- The header is removed with the oldest entries, and replaces the last of them.
    if trims then redis.call('LTRIM', log.key, SPARE, -1) end
    if trims or header ~= log.header then redis.call('LSET', log.key, 0, header) end
  else
    if log.there then redis.call('DEL', log.key) end
    redis.call('RPUSH', log.key, header, at)
  end
  local how, millis = expiry(plus(at_s, at_n, span_s, span_n))
  redis.call(how == 'PX' and 'PEXPIRE' or 'PEXPIREAT', log.key, millis)
  return at
end
