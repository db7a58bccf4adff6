-- The row of a job whose key is not a hash: false for each of `count` fields.
local function no_fields(count)
  local row = {}
  for i = 1, count do
    row[i] = false
  end
  return row
end
