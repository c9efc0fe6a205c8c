-- What there is of one bucket, whatever it is: now, the string, and of a list its length and its ends.
-- Arguments: now.

local key = KEYS[1]
if redis.call('TYPE', key).ok == 'list' then
  return {now_s, now_n, false, redis.call('LLEN', key), redis.call('LINDEX', key, 0), redis.call('LINDEX', key, -1)}
end
local value = redis.pcall('GET', key)
return {now_s, now_n, type(value) == 'string' and value}
