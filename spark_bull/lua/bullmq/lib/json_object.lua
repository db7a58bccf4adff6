-- The parsed JSON object, or an empty table for anything else.
local function json_object(text)
  local is_json, value = pcall(cjson.decode, text)
  return is_json and type(value) == 'table' and value or {}
end
