-- Reads one bucket: what the decisions on cost 0 and on cost 1 are made from, and of a log its length and its ends.
-- Arguments: now, the algorithm or nothing if the id is unlimited, and six numbers for each of the two costs.
-- Answers now, what it found for each cost, and the log.

local algorithm, reply, bucket = ALGORITHMS[ARGV[2]], {now_s, now_n}, {}
if not algorithm then return reply end
for cost = 0, 1 do
  bucket = {key = KEYS[1], found = false}
  algorithm.look(bucket, 3 + 6 * cost)
  reply[3 + cost] = bucket.found
end
if (bucket.entries or 0) > 0 then
  reply[5] = bucket.entries
  reply[6], reply[7] = redis.call('LINDEX', bucket.key, 0), redis.call('LINDEX', bucket.key, -1)
end
return reply
