-- Decides a bill, and does what the answer means for each of its charges.
-- Arguments: now, what to do, the expression, and for each charge its algorithm, its kind and six numbers.
-- Answers now, whether the bill is denied, and what it found for each charge.

local ALGORITHMS = {b = token_bucket, l = sliding_log, r = smoothed_rate, q = quota}

local mode, expression, reply = ARGV[2], ARGV[3], {now_s, now_n, 0}
local charges = {}
for i = 1, #KEYS do
  local bucket = {key = KEYS[i], algorithm = ALGORITHMS[ARGV[8 * i - 4]], kind = ARGV[8 * i - 3], found = false}
  bucket.algorithm.look(bucket, 8 * i - 2)
  charges[i], reply[i + 3] = bucket, bucket.found
end

local function denies(i)
  return not charges[i].fits and charges[i].kind ~= 'o'
end

-- Numbers are charges; `|3` and `&2` say of so many before them whether any, or all, deny.
local function denied()
  if expression == '' then
    for i = 1, #charges do
      if denies(i) then return true end
    end
    return false
  end
  local stack, top = {}, 0
  for sign, number in string.gmatch(expression, '([|&]?)(%d+)') do
    number = number + 0
    if sign == '' then
      top = top + 1
      stack[top] = denies(number)
    else
      local deny = sign == '&'
      for i = top - number + 1, top do
        if stack[i] ~= deny then
          deny = not deny
          break
        end
      end
      top = top - number + 1
      stack[top] = deny
    end
  end
  return stack[1]
end

local deny = denied()
if deny then reply[3] = 1 end
if mode == 'check' then return reply end

for i = 1, #charges do
  local bucket = charges[i]
  -- Each charge by itself where the rest of the bill is elsewhere, and whatever fits where the rest has been allowed.
  local allow = mode == 'rest' or (mode == 'each' and bucket.fits) or (mode == 'whole' and not deny)
  if bucket.kind == 'c' then
    if not bucket.fits then bucket.algorithm.mend(bucket) end
  elseif allow then
    if bucket.fits then bucket.algorithm.spend(bucket) else bucket.algorithm.take(bucket) end
  elseif not bucket.fits and bucket.kind == 's' then
    bucket.algorithm.refuse(bucket)
  end
end
return reply
