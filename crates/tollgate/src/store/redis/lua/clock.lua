-- Redis's own time, or the caller's.

local now_s, now_n
local own_time = ARGV[1] == ''
if own_time then
  local time = redis.call('TIME')
  now_s, now_n = time[1] + 0, time[2] * 1000
else
  now_s, now_n = split(ARGV[1])
end

-- How many milliseconds a key is kept that has something to say for so long. Never too few: the part of a millisecond
-- counts whole, and one more is for the time that has passed since the script began, which Redis counts from. Time that
-- is not ours may pass slower.
local function lifetime(h, l)
  local millis = h * 1000 + math.ceil(l / 1e6) + 1
  if not own_time and millis < 3600000 then return 3600000 end
  return millis
end

-- Writes what a bucket has become, or nothing where it has nothing more to say.
local function keep(bucket, value, until_s, until_n)
  if less(now_s, now_n, until_s, until_n) or (bucket.found and not own_time) then
    redis.call('SET', bucket.key, value, 'PX', lifetime(minus(until_s, until_n, now_s, now_n)))
  elseif bucket.found then
    redis.call('DEL', bucket.key)
  end
end
