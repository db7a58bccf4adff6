-- Name -> position in the list.
local function positions_of(names)
  local positions = {}
  for i, name in ipairs(names) do
    positions[name] = i
  end
  return positions
end
