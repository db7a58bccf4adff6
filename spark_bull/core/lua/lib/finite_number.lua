-- The number in a field of a hash or an option, which others may have written; nil for none, NaN, and what no double
-- holds exactly.
local function finite_number(text)
  local number = tonumber(text)
  return number and math.abs(number) <= 9007199254740991 and number or nil
end
