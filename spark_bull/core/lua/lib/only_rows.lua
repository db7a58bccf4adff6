-- A chunk with only these rows of another one.
local function only_rows(chunk, rows)
  if #rows == chunk.n then
    return chunk
  end
  local part = {}
  for name, column in pairs(chunk) do
    part[name] = column
    if type(column) == 'table' then
      part[name] = {}
      for i, row in ipairs(rows) do
        part[name][i] = column[row]
      end
    end
  end
  part.n = #rows
  return part
end
