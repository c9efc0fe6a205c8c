-- Takes back the charges and entries of one part of a bill after another part, in another slot, was denied. If others
-- have changed a bucket meanwhile and the difference cannot be known, it may be left slightly lower.
-- Arguments: now, and for each charge its algorithm and six values; for each log an `e` and the moment that was entered.

local undo = {}

-- The time that was taken, the moment when the bucket would have been full without it, and the time of one unit.
-- The time that others took after that moment counts as taken now: nobody gets more because the bucket was below
-- full. A bucket that was written in another unit since then is left alone.
function undo.b(bucket, at)
  local value, unit, overdrawn = read_token_bucket(bucket)
  if unit ~= ARGV[at + 4] then return end
  local late_s, late_n = minus(now_s, now_n, ARGV[at + 2] + 0, ARGV[at + 3] + 0)
  local back_s, back_n = minus(ARGV[at] + 0, ARGV[at + 1] + 0, late_s, late_n)
  local full_s, full_n = split(value)
  full_s, full_n = minus(full_s, full_n, back_s, back_n)
  write_token_bucket(bucket, full_s, full_n, unit, overdrawn)
end

-- The number of entries and their moment: these are removed, and no newer ones.
function undo.l(bucket, at)
  redis.pcall('LREM', bucket.key, -ARGV[at + 1], digits(ARGV[at + 2] + 0, ARGV[at + 3] + 0))
end

-- The units that were used, and the end of their window. A later window does not count them.
function undo.q(bucket, at)
  read_quota(bucket)
  if less(ARGV[at + 2] + 0, ARGV[at + 3] + 0, bucket.end_s, bucket.end_n) or not bucket.found then return end
  local used_h, used_l = minus(bucket.used_h, bucket.used_l, ARGV[at] + 0, ARGV[at + 1] + 0)
  if used_h == 0 and used_l == 0 then return redis.call('DEL', bucket.key) end
  write_quota(bucket, used_h, used_l, bucket.end_s, bucket.end_n)
end

-- The units that were used, and the end of their window.
function undo.f(bucket, at)
  read_fixed_window(bucket)
  if bucket.until_s ~= ARGV[at + 2] + 0 or bucket.until_n ~= ARGV[at + 3] + 0 then return end
  local used_h, used_l = minus(bucket.used_h, bucket.used_l, ARGV[at] + 0, ARGV[at + 1] + 0)
  write_fixed_window(bucket, used_h, used_l, bucket.until_s, bucket.until_n)
end

-- The units that were used, the end of their window, and the period. That window may be the previous one by now.
function undo.s(bucket, at)
  read_sliding_window(bucket)
  local units, end_s, end_n = ARGV[at + 1] + 0, ARGV[at + 2] + 0, ARGV[at + 3] + 0
  local next_s, next_n = plus(end_s, end_n, ARGV[at + 4] + 0, ARGV[at + 5] + 0)
  if bucket.until_s == end_s and bucket.until_n == end_n then
    bucket.current = math.max(0, bucket.current - units)
  elseif bucket.until_s == next_s and bucket.until_n == next_n then
    bucket.previous = math.max(0, bucket.previous - units)
  else
    return
  end
  write_sliding_window(bucket, bucket.until_s, bucket.until_n, bucket.kept, bucket.current, bucket.previous)
end

-- The amount added to the rate, the period in seconds, the moment, the rate after it, and the rate before it. The
-- amount has decayed since then, as the rate has.
function undo.r(bucket, at)
  read_rate(bucket)
  if not bucket.found then return end
  local at_s, at_n, before = ARGV[at + 2] + 0, ARGV[at + 3] + 0, ARGV[at + 5]
  if bucket.last_s == at_s and bucket.last_n == at_n and bucket.rate == ARGV[at + 4] + 0 then
    -- No request came after it. The next one must not be measured by an interval that began with this one.
    if before == '' then return redis.call('DEL', bucket.key) end
    return redis.call('SET', bucket.key, before, 'KEEPTTL')
  end
  local idle = double(minus(bucket.last_s, bucket.last_n, at_s, at_n)) / 1e9
  local rate = math.max(0, bucket.rate - ARGV[at] * math.exp(-idle / ARGV[at + 1]))
  write_rate(bucket, rate, bucket.last_s, bucket.last_n, bucket.silent_s, bucket.silent_n)
end

-- The moment of the entry in the log of a rule. An entry that is too old stays: others may have been dropped for it.
function undo.e(log, at)
  if is_settled(ARGV[at]) then return end
  redis.pcall('LREM', log.key, -1, ARGV[at])
  -- Only the header is left.
  if redis.pcall('LLEN', log.key) == 1 then redis.call('DEL', log.key) end
end

for i = 1, #KEYS do
  undo[ARGV[7 * i - 5]]({key = KEYS[i], found = false}, 7 * i - 4)
end
return true
