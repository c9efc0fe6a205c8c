-- Does to one quota what each order says, one after another, and answers now and what there was before the first.
-- Arguments: now, and five for each order: how long the quota lives at most, what to do, and up to three numbers.

local bucket = {key = KEYS[1], found = false}
read_quota(bucket)
local found, left_h, left_l, end_s, end_n = bucket.found, bucket.used_h, bucket.used_l, bucket.end_s, bucket.end_n

local function change(how, ah, al, bh, bl)
  if how == '+' then return plus(ah, al, bh, bl) end
  if how == '-' then return minus(ah, al, bh, bl) end
  return bh, bl
end

local changed = false
for at = 3, #ARGV, 5 do
  local last_s, last_n = plus(now_s, now_n, split(ARGV[at - 1]))
  local what, how = string.match(ARGV[at], '^(%a)(.?)$')
  local live, value = less(now_s, now_n, end_s, end_n), ARGV[at + 1]
  if what == 'i' then
    if how == '!' or not live then
      left_h, left_l = split(value)
      end_s, end_n = least(last_s, last_n, plus(now_s, now_n, split(ARGV[at + 2])))
      bucket.unit, changed = ARGV[at + 3], true
    end
  elseif live and what == 'c' then
    left_h, left_l = change(how, left_h, left_l, split(value))
    changed = true
  elseif live and what == 'l' then
    -- The span in each unit, of which only the quota itself knows which one it is counted in.
    local unit = bucket.unit
    local span_h, span_l = split(unit == '0' and value or unit == '1' and ARGV[at + 2] or ARGV[at + 3])
    if how == '=' then
      end_s, end_n = plus(now_s, now_n, span_h, span_l)
    else
      end_s, end_n = change(how, end_s, end_n, span_h, span_l)
    end
    if how ~= '-' then end_s, end_n = least(end_s, end_n, last_s, last_n) end
    changed = true
  elseif live and what == 'x' then
    left_h, left_l, end_s, end_n, bucket.unit, changed = 0, 0, 0, 0, '0', true
  end
end

if changed then write_quota(bucket, left_h, left_l, end_s, end_n) end
return {now_s, now_n, found}
