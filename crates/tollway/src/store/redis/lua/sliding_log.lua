-- A sliding log is a list of moments, the oldest on the left.
-- Arguments: the cost, the count and the period.

local sliding_log = {}

local function entry(bucket, at)
  return redis.call('LINDEX', bucket.key, at)
end

-- How many entries are not after this moment: they are in order, and it is near the left nearly always.
local function entries_until(bucket, s, n)
  local known, probe = 0, 0
  while probe < bucket.entries and not less(s, n, split(entry(bucket, probe))) do
    known, probe = probe + 1, probe * 2 + 1
  end
  if probe > bucket.entries then probe = bucket.entries end
  while known < probe do
    local middle = math.floor((known + probe) / 2)
    if less(s, n, split(entry(bucket, middle))) then probe = middle else known = middle + 1 end
  end
  return known
end

function sliding_log.look(bucket, at)
  local cost, count = ARGV[at] + 0, ARGV[at + 2] + 0
  bucket.period_s, bucket.period_n = ARGV[at + 4] + 0, ARGV[at + 5] + 0
  local entries, dead = redis.pcall('LLEN', bucket.key), 0
  -- Something else, from when the limit had another algorithm.
  bucket.foreign = type(entries) ~= 'number'
  if bucket.foreign then entries = 0 end
  bucket.entries = entries
  if not less(now_s, now_n, bucket.period_s, bucket.period_n) then
    dead = entries_until(bucket, minus(now_s, now_n, bucket.period_s, bucket.period_n))
  end
  local live = entries - dead
  bucket.cost, bucket.dead, bucket.live = cost, dead, live
  bucket.fits = cost <= math.max(0, count - live)
  local excess = live + cost - count
  if bucket.fits then excess = excess + cost end
  bucket.newest = live > 0 and entry(bucket, -1)
  bucket.found = {live, bucket.newest, excess >= 1 and excess <= live and entry(bucket, dead + excess - 1)}
end

-- So many entries of now.
local function push(bucket, many)
  local now, arguments = digits(now_s, now_n), {}
  for i = 1, math.min(many, 1000) do arguments[i] = now end
  while many > 0 do
    local some = math.min(many, 1000)
    redis.call('RPUSH', bucket.key, unpack(arguments, 1, some))
    many = many - some
  end
end

-- Lets the log go a period after its newest entry.
local function forget_in_time(bucket)
  local newest_s, newest_n = split(bucket.newest)
  local how, millis = expiry(plus(newest_s, newest_n, bucket.period_s, bucket.period_n))
  if how == 'PX' then return redis.call('PEXPIRE', bucket.key, millis) end
  -- It is so already, unless an entry was added or the limit has another period now. A write goes to replicas too.
  local late = redis.call('PTTL', bucket.key) + now_s * 1000 + math.floor(now_n / 1e6) - millis
  if bucket.added or late < -1 or late > 1 then redis.call('PEXPIREAT', bucket.key, millis) end
end

-- Drops what no longer counts, and pulls entries from the future back to now.
local function tidy(bucket)
  if bucket.dead > 0 then redis.call('LTRIM', bucket.key, bucket.dead, -1) end
  bucket.entries = bucket.live
  if bucket.newest and less(now_s, now_n, split(bucket.newest)) then
    local ahead = bucket.live - entries_until(bucket, now_s, now_n)
    redis.call('LTRIM', bucket.key, 0, -1 - ahead)
    push(bucket, ahead)
    bucket.newest = digits(now_s, now_n)
  end
end

function sliding_log.mend(bucket)
  tidy(bucket)
  if bucket.newest then forget_in_time(bucket) end
end

sliding_log.refuse = sliding_log.mend

function sliding_log.spend(bucket)
  if bucket.cost == 0 then return sliding_log.mend(bucket) end
  if bucket.foreign then redis.call('DEL', bucket.key) end
  tidy(bucket)
  push(bucket, bucket.cost)
  bucket.newest, bucket.added = digits(now_s, now_n), true
  forget_in_time(bucket)
end

-- The newest go first.
function sliding_log.refund(bucket)
  tidy(bucket)
  if bucket.live > 0 and bucket.cost > 0 then
    redis.call('LTRIM', bucket.key, 0, -1 - bucket.cost)
    bucket.newest = entry(bucket, -1)
  end
  if bucket.newest then forget_in_time(bucket) end
  bucket.found = {bucket.live, bucket.newest}
end
