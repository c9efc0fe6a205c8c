-- A token bucket is the moment when it is full again.
-- Arguments: how long the cost takes to come, and how long a full bucket does.

local token_bucket = {}

function token_bucket.look(bucket, at)
  bucket.cost_s, bucket.cost_n = ARGV[at] + 0, ARGV[at + 1] + 0
  bucket.fill_s, bucket.fill_n = ARGV[at + 2] + 0, ARGV[at + 3] + 0
  bucket.full_s, bucket.full_n = 0, 0
  local value = redis.pcall('GET', bucket.key)
  if is_number(value) then
    bucket.found = value
    bucket.full_s, bucket.full_n = split(value)
  end
  bucket.owed_s, bucket.owed_n =
    least(bucket.fill_s, bucket.fill_n, minus(bucket.full_s, bucket.full_n, now_s, now_n))
  bucket.fits = not less(bucket.fill_s, bucket.fill_n, plus(bucket.owed_s, bucket.owed_n, bucket.cost_s, bucket.cost_n))
end

local function full_after(bucket, h, l)
  local full_s, full_n = plus(now_s, now_n, h, l)
  keep(bucket, digits(full_s, full_n), full_s, full_n)
end

-- A moment too far ahead would else be too far ahead at every retry.
function token_bucket.mend(bucket)
  if less(bucket.fill_s, bucket.fill_n, minus(bucket.full_s, bucket.full_n, now_s, now_n)) then
    full_after(bucket, bucket.fill_s, bucket.fill_n)
  end
end

token_bucket.refuse = token_bucket.mend

function token_bucket.spend(bucket)
  if bucket.cost_s == 0 and bucket.cost_n == 0 then return token_bucket.mend(bucket) end
  full_after(bucket, plus(bucket.owed_s, bucket.owed_n, bucket.cost_s, bucket.cost_n))
end

function token_bucket.refund(bucket)
  if bucket.owed_s > 0 or bucket.owed_n > 0 then
    full_after(bucket, minus(bucket.owed_s, bucket.owed_n, bucket.cost_s, bucket.cost_n))
  end
end
