-- Windows begin at multiples of their period since 1970, or an offset later that is less than the period.

-- Returns the remainder of a division by a period.
local function remainder(ah, al, bh, bl)
  -- Nearly all periods are whole seconds.
  if bl == 0 then return math.fmod(ah, bh), al end
  if bh < 9000 then
    -- A thousand times such a period is exact as a double.
    local period = double(bh, bl)
    local left = math.fmod(ah, period)
    for _ = 1, 3 do left = math.fmod(left * 1000, period) end
    left = math.fmod(left + al, period)
    return math.floor(left / 1e9), left % 1e9
  end
  local powers, n = {}, 0
  while not less(ah, al, bh, bl) do
    n = n + 1
    powers[n] = {bh, bl}
    bh, bl = plus(bh, bl, bh, bl)
    -- The sum is at its maximum, an odd number: it was cut, and the double is later than any time.
    if bh == 18446744073 and bl == 709551615 then break end
  end
  for i = n, 1, -1 do
    if not less(ah, al, powers[i][1], powers[i][2]) then ah, al = minus(ah, al, powers[i][1], powers[i][2]) end
  end
  return ah, al
end

-- When the window ends that now is in.
local function window_end(period_s, period_n, offset_s, offset_n)
  local into_s, into_n = remainder(now_s, now_n, period_s, period_n)
  if less(into_s, into_n, offset_s, offset_n) then
    return plus(now_s, now_n, minus(offset_s, offset_n, into_s, into_n))
  end
  return plus(now_s, now_n, minus(period_s, period_n, minus(into_s, into_n, offset_s, offset_n)))
end
