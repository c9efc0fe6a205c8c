-- Reads one bucket whole, and answers now, for how many milliseconds the key lives on, and what it holds: a string, a
-- list, nothing, or 0 for what no bucket is.
-- Arguments: now.

local kind, found = redis.call('TYPE', KEYS[1]).ok, false
if kind == 'string' then
  found = redis.call('GET', KEYS[1])
elseif kind == 'list' then
  found = redis.call('LRANGE', KEYS[1], 0, -1)
elseif kind ~= 'none' then
  found = 0
end
return {now_s, now_n, redis.call('PTTL', KEYS[1]), found}
