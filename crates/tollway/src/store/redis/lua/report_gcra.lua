-- Enters a request that a gatekeeper let through in one instant a rule, `g1700000000000000000 1700000000100000000`, each
-- of which it moves on by an interval.
-- Arguments: now; the moment, or nothing to change nothing; how far ahead of now it is believed; and of each rule its
-- interval, and how far ahead of now its instant may be.
-- Answers now, and the instants.

local key = KEYS[1]
local rules, instants = (#ARGV - 4) / 4, {}
local found = redis.pcall('GET', key)
if type(found) == 'string' and string.sub(found, 1, 1) == 'g' then
  for instant in string.gmatch(found, '%d+') do instants[#instants + 1] = instant end
end

local at_s, at_n = now_s, now_n
local moves = ARGV[2] ~= '' and rules > 0
if moves then
  at_s, at_n = split(ARGV[2])
  at_s, at_n = least(at_s, at_n, plus(now_s, now_n, ARGV[3] + 0, ARGV[4] + 0))
  if less(at_s, at_n, now_s, now_n) then at_s, at_n = now_s, now_n end
end
local reply, last_s, last_n = {now_s, now_n}, 0, 0
for i = 1, rules do
  local s, n = split(instants[i] or '0')
  if moves then
    if less(s, n, at_s, at_n) then s, n = at_s, at_n end
    s, n = plus(s, n, ARGV[4 * i + 1] + 0, ARGV[4 * i + 2] + 0)
    s, n = least(s, n, plus(now_s, now_n, ARGV[4 * i + 3] + 0, ARGV[4 * i + 4] + 0))
    if less(last_s, last_n, s, n) then last_s, last_n = s, n end
  end
  instants[i] = digits(s, n)
  reply[i + 2] = instants[i]
end
if moves then redis.call('SET', key, 'g' .. table.concat(instants, ' ', 1, rules), expiry(last_s, last_n)) end
return reply
