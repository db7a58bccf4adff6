-- Rows of values as columns, by the names of the fields: a list of values, or one value where all rows have the same;
-- false for none. `rows.same`: the values of fields that are not in the rows, name -> value of all of them.
local function collapsed(rows, names)
  local columns, count, same = {}, #rows, rows.same or {}
  for field, name in ipairs(names) do
    local first, column = rows[1][field] or same[name] or false, nil
    for i = 2, same[name] == nil and count or 1 do
      if (rows[i][field] or false) ~= first then
        column = {}
        break
      end
    end
    if column then
      for i = 1, count do
        column[i] = rows[i][field] or false
      end
    end
    columns[name] = column or first
  end
  return columns
end
