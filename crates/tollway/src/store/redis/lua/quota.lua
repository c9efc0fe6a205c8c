-- A quota is a counter, when it ends, and a unit that only its owner reads: `q3 1700000000000000000 0`.

local quota = {}

local function read_quota(bucket)
  bucket.used_h, bucket.used_l, bucket.end_s, bucket.end_n, bucket.unit = 0, 0, 0, 0, '0'
  local value = redis.pcall('GET', bucket.key)
  if type(value) ~= 'string' then return end
  local used, ends, unit = string.match(value, '^q(%d+) (%d+) (%d+)$')
  if used then
    bucket.found, bucket.unit = value, unit
    bucket.used_h, bucket.used_l = split(used)
    bucket.end_s, bucket.end_n = split(ends)
  end
end

local function write_quota(bucket, used_h, used_l, end_s, end_n)
  local value = string.format('q%s %s %s', digits(used_h, used_l), digits(end_s, end_n), bucket.unit)
  keep(bucket, value, end_s, end_n)
end

-- Arguments: the cost, the count and the period.
function quota.look(bucket, at)
  bucket.cost_h, bucket.cost_l = ARGV[at] + 0, ARGV[at + 1] + 0
  bucket.count_h, bucket.count_l = ARGV[at + 2] + 0, ARGV[at + 3] + 0
  bucket.period_s, bucket.period_n = ARGV[at + 4] + 0, ARGV[at + 5] + 0
  read_quota(bucket)
  bucket.last_s, bucket.last_n = plus(now_s, now_n, bucket.period_s, bucket.period_n)
  bucket.live = less(now_s, now_n, bucket.end_s, bucket.end_n)
  local used_h, used_l = 0, 0
  if bucket.live then used_h, used_l = bucket.used_h, bucket.used_l end
  local left_h, left_l = minus(bucket.count_h, bucket.count_l, used_h, used_l)
  bucket.fits = not less(left_h, left_l, bucket.cost_h, bucket.cost_l)
end

-- An end too far ahead would else be too far ahead at every retry.
function quota.mend(bucket)
  if less(bucket.last_s, bucket.last_n, bucket.end_s, bucket.end_n) then
    write_quota(bucket, bucket.used_h, bucket.used_l, bucket.last_s, bucket.last_n)
  end
end

quota.refuse = quota.mend

function quota.spend(bucket)
  local h, l = bucket.cost_h, bucket.cost_l
  if h == 0 and l == 0 then return quota.mend(bucket) end
  if not bucket.live then return write_quota(bucket, h, l, bucket.last_s, bucket.last_n) end
  local used_h, used_l = plus(bucket.used_h, bucket.used_l, h, l)
  write_quota(bucket, used_h, used_l, least(bucket.end_s, bucket.end_n, bucket.last_s, bucket.last_n))
end

function quota.refund(bucket)
  if bucket.live then
    local used_h, used_l = minus(bucket.used_h, bucket.used_l, bucket.cost_h, bucket.cost_l)
    write_quota(bucket, used_h, used_l, least(bucket.end_s, bucket.end_n, bucket.last_s, bucket.last_n))
  end
end
