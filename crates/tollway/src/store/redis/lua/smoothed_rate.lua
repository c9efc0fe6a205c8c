-- A smoothed rate is when it was measured, what it was, and when it is forgotten: `r1700000000000000000 2.5 17…`.
-- Arguments: the cost, the limit, the period in seconds, whether refusals count, and after how long it is forgotten.
-- High rates fade for longer: HIGH_RATE and HIGH_RATE_FACTOR of the core.

local smoothed_rate = {}

local function read_rate(bucket)
  bucket.last_s, bucket.last_n, bucket.rate, bucket.silent_s, bucket.silent_n = 0, 0, 0, 0, 0
  local value = redis.pcall('GET', bucket.key)
  if type(value) ~= 'string' then return end
  local last, rate, silent = string.match(value, '^r(%d+) (%S+) (%d+)$')
  rate = tonumber(rate)
  if rate then
    bucket.found, bucket.rate = value, rate
    bucket.last_s, bucket.last_n = split(last)
    bucket.silent_s, bucket.silent_n = split(silent)
  end
end

local function write_rate(bucket, rate, last_s, last_n, silent_s, silent_n)
  local value = string.format('r%s %.17g %s', digits(last_s, last_n), rate, digits(silent_s, silent_n))
  keep(bucket, value, silent_s, silent_n)
end

function smoothed_rate.look(bucket, at)
  local cost, limit, period = ARGV[at] + 0, ARGV[at + 1] + 0, ARGV[at + 2] + 0
  bucket.counts_refusals = ARGV[at + 3] == '1'
  bucket.span_s, bucket.span_n = ARGV[at + 4] + 0, ARGV[at + 5] + 0
  bucket.cost, bucket.measured = cost, 0
  read_rate(bucket)
  if less(now_s, now_n, bucket.silent_s, bucket.silent_n) then
    local idle = double(minus(now_s, now_n, bucket.last_s, bucket.last_n)) / 1e9
    -- A clock that stood still or stepped back: the shortest interval there is.
    if idle == 0 then idle = 1e-9 end
    local x = idle / period
    local a = math.exp(-x)
    bucket.measured = (1 - a) / x * cost + a * bucket.rate
  end
  bucket.fits = bucket.measured < limit
end

local function remember(bucket, rate)
  local span_s, span_n = bucket.span_s, bucket.span_n
  if rate >= 1e6 then
    span_s, span_n = span_s * 40 + math.floor(span_n * 40 / 1e9), span_n * 40 % 1e9
  end
  write_rate(bucket, rate, now_s, now_n, plus(now_s, now_n, span_s, span_n))
end

-- Else it would not fade until the time comes again that it was measured at.
function smoothed_rate.mend(bucket)
  if less(now_s, now_n, bucket.last_s, bucket.last_n) then remember(bucket, bucket.rate) end
end

function smoothed_rate.spend(bucket)
  if bucket.cost == 0 then return smoothed_rate.mend(bucket) end
  remember(bucket, bucket.measured)
end

function smoothed_rate.refuse(bucket)
  if bucket.counts_refusals then return smoothed_rate.spend(bucket) end
  smoothed_rate.mend(bucket)
end
