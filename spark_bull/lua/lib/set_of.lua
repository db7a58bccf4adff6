-- The set of the values of a list: value -> true.
local function set_of(values)
  local set = {}
  for _, value in ipairs(values) do
    set[value] = true
  end
  return set
end
