-- Nanoseconds since 1970, like any counter of 64 bits, do not fit in a double. Here such a number is a pair: the
-- billions, and the nine digits below them. Of a moment these are the seconds and the nanoseconds.

local function less(ah, al, bh, bl)
  return ah < bh or (ah == bh and al < bl)
end

local function plus(ah, al, bh, bl)
  local h, l = ah + bh, al + bl
  if l >= 1e9 then h, l = h + 1, l - 1e9 end
  if h >= 18446744073 and (h > 18446744073 or l > 709551615) then return 18446744073, 709551615 end
  return h, l
end

-- Zero if the second number is the greater.
local function minus(ah, al, bh, bl)
  local h, l = ah - bh, al - bl
  if l < 0 then h, l = h - 1, l + 1e9 end
  if h < 0 then return 0, 0 end
  return h, l
end

local function least(ah, al, bh, bl)
  if less(bh, bl, ah, al) then return bh, bl end
  return ah, al
end

-- Exact up to 2^53. Above, for spans of up to 146 years, it is rounded as a conversion from an integer is.
local function double(h, l)
  return h * 1e9 + l
end

local function is_number(text)
  return type(text) == 'string' and string.find(text, '^%d+$') ~= nil
end

local function split(digits)
  return tonumber(string.sub(digits, 1, -10)) or 0, tonumber(string.sub(digits, -9))
end

local function digits(h, l)
  if h > 0 then return string.format('%d%09d', h, l) end
  return string.format('%d', l)
end
