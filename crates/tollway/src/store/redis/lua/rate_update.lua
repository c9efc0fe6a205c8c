-- Measures one rate with one more request in it, and answers now, whether that is over the limit, and what it found.
-- Arguments: now, and six numbers.

local bucket = {key = KEYS[1], found = false}
smoothed_rate.look(bucket, 2)
local found = bucket.found
if bucket.fits then
  smoothed_rate.spend(bucket)
  return {now_s, now_n, 0, found}
end
smoothed_rate.refuse(bucket)
return {now_s, now_n, 1, found}
