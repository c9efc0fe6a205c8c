-- Redis's own time, or the caller's.

local now_s, now_n
local own_time = ARGV[1] == ''
if own_time then
  local time = redis.call('TIME')
  now_s, now_n = time[1] + 0, time[2] * 1000
else
  now_s, now_n = split(ARGV[1])
end

-- Returns when a key expires whose value matters until a moment: never sooner, so a started millisecond is a whole one.
-- Time that is not Redis's own may pass slower than that of keys.
local function expiry(s, n)
  local millis = s * 1000 + math.ceil(n / 1e6)
  if own_time then return 'PXAT', millis end
  return 'PX', math.max(3600000, millis - now_s * 1000)
end

-- Stores the bucket, or deletes it once it has expired.
local function keep(bucket, value, until_s, until_n)
  if less(now_s, now_n, until_s, until_n) or (bucket.found and not own_time) then
    redis.call('SET', bucket.key, value, expiry(until_s, until_n))
  elseif bucket.found then
    redis.call('DEL', bucket.key)
  end
end
