-- Resolves a rule, and enters the request in every log if it does not limit.
-- Arguments: now, what to do, whether entries may be taken back, the expression, how many rates there are, the log, the
-- count and the span of each, and of each log how many entries the rule wants kept, and for how long.
-- Answers nothing where the whole rule was asked about and allows. Else now, and until when each rate is reached; and of
-- one part of a rule the moment that was entered in each log, unless that part limits whatever the others say.

local mode, revocable, expression, rates = ARGV[2], ARGV[3] == '1', ARGV[4], ARGV[5] + 0
local logs, reached, moments = {}, {}, {}
for i = 1, #KEYS do logs[i] = read_log(KEYS[i]) end
for i = 1, rates do
  local at = 4 * i + 2
  local log, count = logs[ARGV[at] + 0], ARGV[at + 1] + 0
  local s, n = reached_until(log, count, ARGV[at + 2] + 0, ARGV[at + 3] + 0)
  moments[2 * i - 1], moments[2 * i], reached[i] = s, n, less(now_s, now_n, s, n)
end
local limits = holds(expression, reached)

local reply = false
if limits or mode ~= 'whole' then
  reply = {now_s, now_n}
  for i = 1, rates do reply[i + 2] = digits(moments[2 * i - 1], moments[2 * i]) end
end
if limits or mode == 'look' then return reply end
for i = 1, #logs do
  local at = 4 * rates + 3 * i + 3
  local entered = enter(logs[i], ARGV[at] + 0, ARGV[at + 1] + 0, ARGV[at + 2] + 0, revocable)
  if reply then reply[rates + i + 2] = entered end
end
return reply
