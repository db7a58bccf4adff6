-- Numbers as text, each written once: Redis writes a number argument as a double with 17 digits,
-- which costs more than all else about a small field.
local function number_texts()
  local known = {}
  return function(number)
    local text = known[number]
    if not text then
      text = string.format('%.0f', number)
      known[number] = text
    end
    return text
  end
end
