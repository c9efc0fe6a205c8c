-- Decides a bill, and does what the answer means for each of its charges.
-- Arguments: now, what to do, the expression, and for each charge its algorithm, its kind and six numbers.
-- Answers now, whether the bill is denied, and what it found for each charge.

local mode, expression = ARGV[2], ARGV[3]
local charges, denies, deny, reply = {}, {}, false, {now_s, now_n, 0}
for i = 1, #KEYS do
  local at = 8 * i - 4
  local bucket = {key = KEYS[i], algorithm = ALGORITHMS[ARGV[at]], kind = ARGV[at + 1], found = false}
  bucket.algorithm.look(bucket, at + 2)
  denies[i] = not bucket.fits and bucket.kind ~= 'o'
  deny = deny or denies[i]
  charges[i], reply[i + 3] = bucket, bucket.found
end

if expression ~= '' then deny = holds(expression, denies) end
if deny then reply[3] = 1 end
if mode == 'check' then return reply end

for i = 1, #charges do
  local bucket = charges[i]
  local algorithm, kind = bucket.algorithm, bucket.kind
  if not bucket.fits then
    if kind == 's' then algorithm.refuse(bucket) else algorithm.mend(bucket) end
  elseif kind ~= 'c' and (mode == 'each' or not deny) then
    -- Each charge by itself where the rest of the bill is elsewhere.
    algorithm.spend(bucket)
  end
end
return reply
