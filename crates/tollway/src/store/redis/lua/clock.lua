-- Redis's own time, or the caller's.

local now_s, now_n
local own_time = ARGV[1] == ''
if own_time then
  local time = redis.call('TIME')
  now_s, now_n = time[1] + 0, time[2] * 1000
else
  now_s, now_n = split(ARGV[1])
end

-- When a key goes that has something to say until then: never sooner, so the part of a millisecond counts whole.
-- Time that is not Redis's own may pass slower than that of keys.
local function expiry(s, n)
  local millis = s * 1000 + math.ceil(n / 1e6)
  if own_time then return 'PXAT', millis end
  return 'PX', math.max(3600000, millis - now_s * 1000)
end

-- Writes what a bucket has become, or nothing where it has nothing more to say.
local function keep(bucket, value, until_s, until_n)
  if less(now_s, now_n, until_s, until_n) or (bucket.found and not own_time) then
    redis.call('SET', bucket.key, value, expiry(until_s, until_n))
  elseif bucket.found then
    redis.call('DEL', bucket.key)
  end
end
