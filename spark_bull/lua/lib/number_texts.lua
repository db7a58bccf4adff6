-- Returns a function that formats a number, once each: Redis formats number arguments as doubles with 17 digits, which
-- costs more than the rest of writing a small field.
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
