-- A fixed window is a counter, and when the window ends that it counts in: `f3 1700000000000000000`.

local fixed_window = {}

local function read_fixed_window(bucket)
  bucket.used_h, bucket.used_l, bucket.until_s, bucket.until_n = 0, 0, 0, 0
  local value = redis.pcall('GET', bucket.key)
  if type(value) ~= 'string' then return end
  local used, ends = string.match(value, '^f(%d+) (%d+)$')
  if used then
    bucket.found = value
    bucket.used_h, bucket.used_l = split(used)
    bucket.until_s, bucket.until_n = split(ends)
  end
end

local function write_fixed_window(bucket, used_h, used_l, end_s, end_n)
  local value = string.format('f%s %s', digits(used_h, used_l), digits(end_s, end_n))
  if used_h == 0 and used_l == 0 then end_s, end_n = 0, 0 end
  keep(bucket, value, end_s, end_n)
end

-- Arguments: the cost, the count, the period and the offset.
function fixed_window.look(bucket, at)
  bucket.cost_h, bucket.cost_l = split(ARGV[at])
  local count_h, count_l = split(ARGV[at + 1])
  bucket.end_s, bucket.end_n = window_end(ARGV[at + 2] + 0, ARGV[at + 3] + 0, ARGV[at + 4] + 0, ARGV[at + 5] + 0)
  read_fixed_window(bucket)
  bucket.live = less(now_s, now_n, bucket.until_s, bucket.until_n)
  if not bucket.live then bucket.used_h, bucket.used_l = 0, 0 end
  local left_h, left_l = minus(count_h, count_l, bucket.used_h, bucket.used_l)
  bucket.fits = not less(left_h, left_l, bucket.cost_h, bucket.cost_l)
end

-- What was used in a window that has not ended counts in the present one, after the clock or the period has changed.
function fixed_window.mend(bucket)
  if bucket.live and (bucket.until_s ~= bucket.end_s or bucket.until_n ~= bucket.end_n) then
    write_fixed_window(bucket, bucket.used_h, bucket.used_l, bucket.end_s, bucket.end_n)
  end
end

fixed_window.refuse = fixed_window.mend

function fixed_window.spend(bucket)
  local h, l = bucket.cost_h, bucket.cost_l
  if h == 0 and l == 0 then return fixed_window.mend(bucket) end
  local used_h, used_l = plus(bucket.used_h, bucket.used_l, h, l)
  write_fixed_window(bucket, used_h, used_l, bucket.end_s, bucket.end_n)
end

function fixed_window.refund(bucket)
  if bucket.live then
    local used_h, used_l = minus(bucket.used_h, bucket.used_l, bucket.cost_h, bucket.cost_l)
    write_fixed_window(bucket, used_h, used_l, bucket.end_s, bucket.end_n)
  end
end
