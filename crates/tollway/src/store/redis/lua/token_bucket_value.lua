-- Reads the digits of the time and of the unit, and a `!` if more was used than the bucket could hold when it was
-- converted. A bucket whose numbers came with the request has no unit, as version 0.1 wrote none: it is taken as it is.
local function read_token_bucket(bucket)
  local value = redis.pcall('GET', bucket.key)
  if type(value) ~= 'string' then return end
  local full_at, unit, overdrawn = string.match(value, '^(%d+) ?(%d*)(!?)$')
  if full_at then bucket.found = value end
  return full_at, unit, overdrawn
end

local function write_token_bucket(bucket, full_s, full_n, unit, overdrawn)
  keep(bucket, digits(full_s, full_n) .. ' ' .. unit .. overdrawn, full_s, full_n)
end
