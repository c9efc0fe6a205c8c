-- A token bucket is the moment when it is full again, and the time of one unit when that was written:
-- `1700000000000000000 100000000`.
-- Arguments: the time of the cost, that of a full bucket, and that of one unit. The unit is empty if the numbers came
-- with the request: such a bucket is read as it is, even if it owes more than they hold.

local token_bucket = {}

-- Converts a debt from another unit: as many units stay used as before, and a part of one counts whole.
local function convert(owed_s, owed_n, from, to, fill_s, fill_n)
  local from_s, from_n = split(from)
  local to_s, to_n = split(to)
  -- We never write a unit of zero or so large a debt, and the loop below would not end: if one is found, count the
  -- bucket as empty.
  if (from_s == 0 and from_n == 0) or not less(owed_s, owed_n, 18446744073, 709551615) then
    return fill_s, fill_n, ''
  end
  local powers, n = {}, 0
  while not less(owed_s, owed_n, from_s, from_n) do
    n = n + 1
    powers[n] = {from_s, from_n, to_s, to_n}
    from_s, from_n = plus(from_s, from_n, from_s, from_n)
    to_s, to_n = plus(to_s, to_n, to_s, to_n)
  end
  local new_s, new_n = 0, 0
  for i = n, 1, -1 do
    local power = powers[i]
    if not less(owed_s, owed_n, power[1], power[2]) then
      owed_s, owed_n = minus(owed_s, owed_n, power[1], power[2])
      new_s, new_n = plus(new_s, new_n, power[3], power[4])
    end
  end
  if owed_s > 0 or owed_n > 0 then new_s, new_n = plus(new_s, new_n, split(to)) end
  if less(fill_s, fill_n, new_s, new_n) then return fill_s, fill_n, '!' end
  return new_s, new_n, ''
end

function token_bucket.look(bucket, at)
  bucket.cost_s, bucket.cost_n = ARGV[at] + 0, ARGV[at + 1] + 0
  bucket.fill_s, bucket.fill_n = ARGV[at + 2] + 0, ARGV[at + 3] + 0
  bucket.unit, bucket.overdrawn, bucket.full_s, bucket.full_n = ARGV[at + 4], '', 0, 0
  local full_at, unit, overdrawn = read_token_bucket(bucket)
  if full_at then
    bucket.full_s, bucket.full_n = split(full_at)
    local owed_s, owed_n = minus(bucket.full_s, bucket.full_n, now_s, now_n)
    local owes = owed_s > 0 or owed_n > 0
    if owes then bucket.overdrawn = overdrawn end
    bucket.converted = owes and unit ~= '' and bucket.unit ~= '' and unit ~= bucket.unit
    if bucket.converted then
      if overdrawn == '!' then
        -- The true use is unknown, so the bucket counts as empty: servers that disagree would forget it in turns.
        owed_s, owed_n, bucket.overdrawn = bucket.fill_s, bucket.fill_n, ''
      else
        owed_s, owed_n, bucket.overdrawn = convert(owed_s, owed_n, unit, bucket.unit, bucket.fill_s, bucket.fill_n)
      end
      bucket.full_s, bucket.full_n = plus(now_s, now_n, owed_s, owed_n)
    end
  end
  bucket.owed_s, bucket.owed_n = minus(bucket.full_s, bucket.full_n, now_s, now_n)
  if bucket.unit ~= '' then
    bucket.owed_s, bucket.owed_n = least(bucket.fill_s, bucket.fill_n, bucket.owed_s, bucket.owed_n)
  end
  bucket.fits = not less(bucket.fill_s, bucket.fill_n, plus(bucket.owed_s, bucket.owed_n, bucket.cost_s, bucket.cost_n))
end

local function full_after(bucket, h, l)
  local full_s, full_n = plus(now_s, now_n, h, l)
  write_token_bucket(bucket, full_s, full_n, bucket.unit, bucket.overdrawn)
end

-- Otherwise a moment too far ahead would be so at every retry, and one of another unit would stay in that unit.
function token_bucket.mend(bucket)
  if bucket.unit == '' then return end
  if bucket.converted or less(bucket.fill_s, bucket.fill_n, minus(bucket.full_s, bucket.full_n, now_s, now_n)) then
    full_after(bucket, bucket.owed_s, bucket.owed_n)
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
