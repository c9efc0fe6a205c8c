-- The log of a rule is a list: on the left how many entries are kept and for how many seconds and nanoseconds, the most
-- that anybody wanted while it was there, `k10 3600 0`; then the entries, the newest on the right.

-- So many entries too many go at once.
local SPARE = 8

-- Whoever has been in a log for so many seconds is not taken back any more.
local REVOCABLE = 1

-- What is silent to all who fill it, or is something else, is as good as not there.
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

-- Until when so many entries in a span are reached.
local function reached_until(log, count, span_s, span_n)
  if count == 0 then return 18446744073, 709551615 end
  local entry = count <= log.keep and redis.call('LINDEX', log.key, -count)
  -- Where there is one entry too few, this is the header.
  if not is_number(entry) then return 0, 0 end
  local entry_s, entry_n = split(entry)
  entry_s, entry_n = plus(entry_s, entry_n, span_s, span_n)
  return least(entry_s, entry_n, log.silent_s, log.silent_n)
end

local function is_settled(entry)
  local entry_s, entry_n = split(entry)
  return not less(now_s, now_n, plus(entry_s, entry_n, REVOCABLE, 0))
end

-- Enters the request, and answers the moment that it was entered with. `revocable` says that entries of others may be
-- taken back yet: then one only makes way for as many as are kept that will not be.
local function enter(log, keep, span_s, span_n, revocable)
  keep = math.max(keep, log.keep)
  if keep == 0 then return false end
  if less(span_s, span_n, log.span_s, log.span_n) then span_s, span_n = log.span_s, log.span_n end
  local header = string.format('k%d %d %d', keep, span_s, span_n)
  local at_s, at_n = now_s, now_n
  -- By a clock that has stepped back it is as new as the newest.
  if log.header and less(now_s, now_n, log.newest_s, log.newest_n) then at_s, at_n = log.newest_s, log.newest_n end
  local at = digits(at_s, at_n)
  if log.header then
    -- Who wants more kept than all before finds no more than they did, as though nothing had been spared.
    if keep > log.keep and not revocable then redis.call('LTRIM', log.key, -1 - log.keep, -1) end
    local entries = redis.call('RPUSH', log.key, at) - 1
    local trims = entries >= keep + SPARE
      and (not revocable or is_settled(redis.call('LINDEX', log.key, keep + SPARE)))
    -- The header goes with the oldest, and takes the place of the last that goes.
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
