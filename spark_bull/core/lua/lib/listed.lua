-- A chunk has a column per property of its jobs: one value for all of them, a list, or nothing. Returns it as a list,
-- as reading a table costs a fraction of a function call.
local function listed(chunk, name)
  local column = chunk[name]
  if type(column) == 'table' then
    return column
  end
  local list = {}
  if column ~= nil then
    for i = 1, chunk.n do
      list[i] = column
    end
  end
  return list
end
