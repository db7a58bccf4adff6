-- Whether JavaScript takes a value of JSON for true.
local function is_true(value)
  return value ~= nil and value ~= cjson.null and value ~= false and value ~= 0 and value ~= ''
end
