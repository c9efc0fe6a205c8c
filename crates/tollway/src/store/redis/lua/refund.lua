-- Gives back to one bucket, and answers now and what it found.
-- Arguments: now, the algorithm, and six numbers.

local bucket = {key = KEYS[1], found = false}
local algorithm = ALGORITHMS[ARGV[2]]
algorithm.look(bucket, 3)
algorithm.refund(bucket)
return {now_s, now_n, bucket.found}
