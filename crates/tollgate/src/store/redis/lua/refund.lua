-- Gives back to one bucket, and answers now and what it found.
-- Arguments: now, the algorithm, and six numbers.

local ALGORITHMS = {b = token_bucket, l = sliding_log, r = smoothed_rate, q = quota}

local bucket = {key = KEYS[1], found = false}
local algorithm = ALGORITHMS[ARGV[2]]
algorithm.look(bucket, 3)
algorithm.refund(bucket)
return {now_s, now_n, bucket.found}
