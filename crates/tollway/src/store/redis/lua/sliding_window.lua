-- A sliding window is when a window ends, for how long it counts after that, and what was used in it and in the one
-- before: `s1700000000000000000 68719476736 3 8`. Counters are below 2^29.

local sliding_window = {}

local function read_sliding_window(bucket)
  bucket.until_s, bucket.until_n, bucket.kept, bucket.current, bucket.previous = 0, 0, '0', 0, 0
  local value = redis.pcall('GET', bucket.key)
  if type(value) ~= 'string' then return end
  local ends, kept, current, previous = string.match(value, '^s(%d+) (%d+) (%d+) (%d+)$')
  if ends then
    bucket.found, bucket.kept, bucket.current, bucket.previous = value, kept, current + 0, previous + 0
    bucket.until_s, bucket.until_n = split(ends)
  end
end

-- Returns when it expires: what the previous window has seen has no effect after the end of this one.
local function expires_at(end_s, end_n, kept, current, previous)
  if current > 0 then return plus(end_s, end_n, split(kept)) end
  if previous > 0 then return end_s, end_n end
  return 0, 0
end

local function write_sliding_window(bucket, end_s, end_n, kept, current, previous)
  local value = string.format('s%s %s %d %d', digits(end_s, end_n), kept, current, previous)
  keep(bucket, value, expires_at(end_s, end_n, kept, current, previous))
end

-- The product of two numbers, of which one is below 2^29: its billions, and the nine digits below them.
local function times(a, b)
  local upper = math.floor(a / 1e5) * b
  local lower = upper % 1e4 * 1e5 + a % 1e5 * b
  return math.floor(upper / 1e4) + math.floor(lower / 1e9), lower % 1e9
end

-- Whether so many units of one span are less than so many of another.
local function less_product(a, ah, al, b, bh, bl)
  local a1, a0 = times(al, a)
  local a3, a2 = times(ah, a)
  local b1, b0 = times(bl, b)
  local b3, b2 = times(bh, b)
  a3, a2 = plus(a3, a2, 0, a1)
  b3, b2 = plus(b3, b2, 0, b1)
  return less(a3, a2, b3, b2) or (a3 == b3 and a2 == b2 and a0 < b0)
end

-- Arguments: the cost, the count, the period, and for how long a window counts after its end.
function sliding_window.look(bucket, at)
  local period_s, period_n = ARGV[at + 2] + 0, ARGV[at + 3] + 0
  bucket.cost, bucket.kept_now = ARGV[at] + 0, ARGV[at + 4]
  bucket.end_s, bucket.end_n = window_end(period_s, period_n, 0, 0)
  read_sliding_window(bucket)
  local begin_s, begin_n = minus(bucket.end_s, bucket.end_n, period_s, period_n)
  local before_s, before_n = minus(begin_s, begin_n, period_s, period_n)
  local expires_s, expires_n =
    expires_at(bucket.until_s, bucket.until_n, bucket.kept, bucket.current, bucket.previous)
  if not less(now_s, now_n, expires_s, expires_n) then
    bucket.current, bucket.previous = 0, 0
  elseif not less(before_s, before_n, bucket.until_s, bucket.until_n) then
    bucket.current, bucket.previous = 0, 0
  elseif not less(begin_s, begin_n, bucket.until_s, bucket.until_n) then
    bucket.current, bucket.previous = 0, bucket.current
  end
  -- Rounded up, what counts of the previous window fits in the room if and only if it does before it is divided.
  local room = ARGV[at + 1] - bucket.current - bucket.cost
  local covered_s, covered_n = minus(bucket.end_s, bucket.end_n, now_s, now_n)
  bucket.fits = bucket.cost == 0
    or (room >= 0 and not less_product(room, period_s, period_n, bucket.previous, covered_s, covered_n))
end

local function write_here(bucket, current)
  write_sliding_window(bucket, bucket.end_s, bucket.end_n, bucket.kept_now, current, bucket.previous)
end

local function counts(bucket)
  return bucket.current > 0 or bucket.previous > 0
end

-- What counts is kept under the present window: an end too far ahead would else be too far ahead at every retry.
function sliding_window.mend(bucket)
  local moved = bucket.until_s ~= bucket.end_s or bucket.until_n ~= bucket.end_n or bucket.kept ~= bucket.kept_now
  if moved and counts(bucket) then write_here(bucket, bucket.current) end
end

sliding_window.refuse = sliding_window.mend

function sliding_window.spend(bucket)
  if bucket.cost == 0 then return sliding_window.mend(bucket) end
  write_here(bucket, bucket.current + bucket.cost)
end

function sliding_window.refund(bucket)
  if counts(bucket) then write_here(bucket, math.max(0, bucket.current - bucket.cost)) end
end
