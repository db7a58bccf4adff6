-- The whole number >= 0 in a field of a hash, 0 for anything else.
local function whole_number(text)
  local number = tonumber(text)
  if number and number >= 0 and number <= 9007199254740991 and number % 1 == 0 then
    return number
  end
  return 0
end
