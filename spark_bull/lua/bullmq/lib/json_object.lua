-- The table that a text of JSON holds, an empty one for anything else.
local function json_object(text)
  local is_json, value = pcall(cjson.decode, text)
  return is_json and type(value) == 'table' and value or {}
end
