-- Takes back what one part of a rule has entered when the whole limits, unless that is settled by now: then others may
-- have made way for it.
-- Arguments: now, and the moment that was entered in each log; nothing where none was.

for i = 1, #KEYS do
  local key, entry = KEYS[i], ARGV[i + 1]
  if entry ~= '' and not is_settled(entry) then
    redis.pcall('LREM', key, -1, entry)
    -- Nothing but the header is left.
    if redis.pcall('LLEN', key) == 1 then redis.call('DEL', key) end
  end
end
return true
