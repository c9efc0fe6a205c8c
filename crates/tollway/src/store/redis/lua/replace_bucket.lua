-- Replaces one bucket, unless it has changed since it was read, and answers 1, or 0 if it has.
-- Arguments: now; the hash of what was read, or nothing if there was nothing; when the bucket expires, in seconds and
-- nanoseconds; `s` and a string, or `l` and the entries of a list.

local key = KEYS[1]
local kind, seen = redis.call('TYPE', key).ok, ''
if kind == 'string' then
  seen = redis.sha1hex('s' .. redis.call('GET', key))
elseif kind == 'list' then
  seen = redis.sha1hex('l' .. table.concat(redis.call('LRANGE', key, 0, -1), ' '))
elseif kind ~= 'none' then
  seen = kind
end
if seen ~= ARGV[2] then return 0 end

local how, millis = expiry(ARGV[3] + 0, ARGV[4] + 0)
if ARGV[5] == 's' then
  redis.call('SET', key, ARGV[6], how, millis)
else
  redis.call('DEL', key)
  for at = 6, #ARGV, 1000 do redis.call('RPUSH', key, unpack(ARGV, at, math.min(at + 999, #ARGV))) end
  redis.call(how == 'PX' and 'PEXPIRE' or 'PEXPIREAT', key, millis)
end
return 1
