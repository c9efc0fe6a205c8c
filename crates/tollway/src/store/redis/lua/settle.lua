-- Decides a bill, and does what the answer means for each of its charges and for the logs of its rules.
-- Arguments: now, what to do, how many charges there are, for each its algorithm, its kind and six numbers, and the
-- expression over them. Where there are rules, also whether entries may be taken back, how many rules there are, for
-- each its expression, how many rates it has, and the log, the count and the span of each; and for each log how many
-- entries the rules want kept, and for how long.
-- Answers now, whether the bill is denied, and what it found for each charge; then until when each rate is reached,
-- unless the whole bill was asked about and passes; and of one part the moment that was entered in each log.

local mode, charges = ARGV[2], ARGV[3] + 0
local buckets, denies, deny, reply = {}, {}, false, {now_s, now_n, 0}
for i = 1, charges do
  local at = 8 * i - 4
  local bucket = {key = KEYS[i], algorithm = ALGORITHMS[ARGV[at]], kind = ARGV[at + 1], found = false}
  bucket.algorithm.look(bucket, at + 2)
  denies[i] = not bucket.fits and bucket.kind ~= 'o'
  deny = deny or denies[i]
  buckets[i], reply[i + 3] = bucket, bucket.found
end
local at = 8 * charges + 4
if ARGV[at] ~= '' then deny = holds(ARGV[at], denies) end

local logs, moments, limits, revocable = {}, {}, false, false
if RULES then
  for i = 1, #KEYS - charges do logs[i] = read_log(KEYS[charges + i]) end
  revocable = ARGV[at + 1] == '1'
  local rules = ARGV[at + 2] + 0
  at = at + 3
  for _ = 1, rules do
    local expression, rates, reached = ARGV[at], ARGV[at + 1] + 0, {}
    at = at + 2
    for i = 1, rates do
      local s, n = reached_until(logs[ARGV[at] + 0], ARGV[at + 1] + 0, ARGV[at + 2] + 0, ARGV[at + 3] + 0)
      moments[#moments + 1] = s
      moments[#moments + 1] = n
      reached[i] = less(now_s, now_n, s, n)
      at = at + 4
    end
    limits = holds(expression, reached) or limits
  end
end

if deny or limits then reply[3] = 1 end
if reply[3] == 1 or mode ~= 'whole' then
  for i = 1, #moments, 2 do reply[#reply + 1] = digits(moments[i], moments[i + 1]) end
end
if mode == 'check' then return reply end

for i = 1, charges do
  local bucket = buckets[i]
  local algorithm, kind = bucket.algorithm, bucket.kind
  if not bucket.fits then
    if kind == 's' then algorithm.refuse(bucket) else algorithm.mend(bucket) end
  elseif kind ~= 'c' and (mode == 'each' or reply[3] == 0) then
    -- Each charge by itself where the rest of the bill is elsewhere.
    algorithm.spend(bucket)
  end
end
if limits or (deny and mode ~= 'each') then return reply end
for i = 1, #logs do
  local entered = enter(logs[i], ARGV[at] + 0, ARGV[at + 1] + 0, ARGV[at + 2] + 0, revocable)
  if mode ~= 'whole' then reply[#reply + 1] = entered end
  at = at + 3
end
return reply
