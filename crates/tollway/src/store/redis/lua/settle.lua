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
  local algorithm, fits, kind = bucket.algorithm, bucket.fits, bucket.kind
  -- Each charge by itself where the rest of the bill is elsewhere, and whatever fits where the whole has been allowed.
  local allow = (mode == 'whole' and not deny) or (mode == 'each' and fits) or mode == 'rest'
  if kind == 'c' then
    if not fits then algorithm.mend(bucket) end
  elseif allow then
    if fits then algorithm.spend(bucket) else algorithm.take(bucket) end
  elseif kind == 's' and not fits then
    algorithm.refuse(bucket)
  end
end
return reply
