-- Enters a request that a gatekeeper let through in a list of such moments, the newest on the right, and keeps the newest.
-- Arguments: now; the moment, or nothing to change nothing; how far ahead of now it is believed; how many are kept, and for
-- how long; and how many each rule looks back.
-- Answers now, the newest, and the one that each rule looks back to.

local key, keep = KEYS[1], ARGV[5] + 0
local entries = redis.pcall('LLEN', key)
-- Something else, from when the domain had another logic.
local foreign = type(entries) ~= 'number'
if foreign then entries = 0 end

if ARGV[2] ~= '' and keep > 0 then
  local at_s, at_n = split(ARGV[2])
  at_s, at_n = least(at_s, at_n, plus(now_s, now_n, ARGV[3] + 0, ARGV[4] + 0))
  local newer, newer_entries = 0, {}
  while newer < entries do
    local entry = redis.call('LINDEX', key, -1 - newer)
    if not less(at_s, at_n, split(entry)) then break end
    newer = newer + 1
    newer_entries[newer] = entry
  end
  -- One that is older than all that are kept makes no difference.
  if newer < keep then
    if foreign then redis.call('DEL', key) end
    if newer > 0 then redis.call('LTRIM', key, 0, -1 - newer) end
    redis.call('RPUSH', key, digits(at_s, at_n))
    for i = newer, 1, -1 do redis.call('RPUSH', key, newer_entries[i]) end
    redis.call('LTRIM', key, -keep, -1)
    entries, foreign = math.min(entries + 1, keep), false
    local newest_s, newest_n = split(redis.call('LINDEX', key, -1))
    local how, millis = expiry(plus(newest_s, newest_n, ARGV[6] + 0, ARGV[7] + 0))
    redis.call(how == 'PX' and 'PEXPIRE' or 'PEXPIREAT', key, millis)
  end
end

local reply = {now_s, now_n, not foreign and redis.call('LINDEX', key, -1)}
for i = 8, #ARGV do
  reply[i - 4] = not foreign and redis.call('LINDEX', key, -ARGV[i])
end
return reply
