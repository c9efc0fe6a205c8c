-- Takes back what one part of a bill has charged and entered when another part, in another slot, was refused: as though
-- it had never been, or, where others came in between and that cannot be known, as though a little of it had.
-- Arguments: now, and for each charge its algorithm and six values; for each log an `e` and the moment that was entered.

local undo = {}

-- What was taken, from when on the bucket would have been full had it not been, and how long one unit takes to come.
-- What others took after that moment counts as taken now, so that nobody gets more for the bucket having stood below
-- full. A bucket that somebody has written in another unit since then is left alone.
function undo.b(bucket, at)
  local value, unit, overdrawn = read_token_bucket(bucket)
  if unit ~= ARGV[at + 4] then return end
  local late_s, late_n = minus(now_s, now_n, ARGV[at + 2] + 0, ARGV[at + 3] + 0)
  local back_s, back_n = minus(ARGV[at] + 0, ARGV[at + 1] + 0, late_s, late_n)
  local full_s, full_n = split(value)
  full_s, full_n = minus(full_s, full_n, back_s, back_n)
  write_token_bucket(bucket, full_s, full_n, unit, overdrawn)
end

-- How many entries, and of which moment: these, and no newer ones.
function undo.l(bucket, at)
  redis.pcall('LREM', bucket.key, -ARGV[at + 1], digits(ARGV[at + 2] + 0, ARGV[at + 3] + 0))
end

-- What was used, and the end of the window it was used in. A later window has not seen it.
function undo.q(bucket, at)
  read_quota(bucket)
  if less(ARGV[at + 2] + 0, ARGV[at + 3] + 0, bucket.end_s, bucket.end_n) or not bucket.found then return end
  local used_h, used_l = minus(bucket.used_h, bucket.used_l, ARGV[at] + 0, ARGV[at + 1] + 0)
  if used_h == 0 and used_l == 0 then return redis.call('DEL', bucket.key) end
  write_quota(bucket, used_h, used_l, bucket.end_s, bucket.end_n)
end

-- What was used, and the end of the window it was used in.
function undo.f(bucket, at)
  read_fixed_window(bucket)
  if bucket.until_s ~= ARGV[at + 2] + 0 or bucket.until_n ~= ARGV[at + 3] + 0 then return end
  local used_h, used_l = minus(bucket.used_h, bucket.used_l, ARGV[at] + 0, ARGV[at + 1] + 0)
  write_fixed_window(bucket, used_h, used_l, bucket.until_s, bucket.until_n)
end

-- What was used, the end of the window it was used in, and the period. By now that window may be the previous one.
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

-- What it added to the rate, the period in seconds, when, to what rate, and what there was before. What was added has
-- faded since, like everything else.
function undo.r(bucket, at)
  read_rate(bucket)
  if not bucket.found then return end
  local at_s, at_n, before = ARGV[at + 2] + 0, ARGV[at + 3] + 0, ARGV[at + 5]
  if bucket.last_s == at_s and bucket.last_n == at_n and bucket.rate == ARGV[at + 4] + 0 then
    -- Nobody came after it. The next request must not be measured by an interval that began with this one.
    if before == '' then return redis.call('DEL', bucket.key) end
    return redis.call('SET', bucket.key, before, 'KEEPTTL')
  end
  local idle = double(minus(bucket.last_s, bucket.last_n, at_s, at_n)) / 1e9
  local rate = math.max(0, bucket.rate - ARGV[at] * math.exp(-idle / ARGV[at + 1]))
  write_rate(bucket, rate, bucket.last_s, bucket.last_n, bucket.silent_s, bucket.silent_n)
end

-- The moment that was entered in the log of a rule, unless it is settled by now: then others may have made way for it.
function undo.e(log, at)
  if is_settled(ARGV[at]) then return end
  redis.pcall('LREM', log.key, -1, ARGV[at])
  -- Nothing but the header is left.
  if redis.pcall('LLEN', log.key) == 1 then redis.call('DEL', log.key) end
end

for i = 1, #KEYS do
  undo[ARGV[7 * i - 5]]({key = KEYS[i], found = false}, 7 * i - 4)
end
return true
