-- Numbers are answers; `|3` and `&2` say of so many before them whether any, or all, hold.
local function holds(expression, answers)
  local stack, top = {}, 0
  for sign, number in string.gmatch(expression, '([|&]?)(%d+)') do
    if sign == '' then
      top = top + 1
      stack[top] = answers[number + 0]
    else
      local all = sign == '&'
      local answer = all
      for i = top - number + 1, top do
        if stack[i] ~= all then answer = not all end
      end
      top = top - number + 1
      stack[top] = answer
    end
  end
  return stack[1]
end
