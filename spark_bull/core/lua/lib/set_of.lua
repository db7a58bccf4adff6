-- The set of the values of a list: value -> true.
local function set_of(values)
  local set = {}
  for i = 1, #values do
    set[values[i]] = true
  end
  return set
end
