-- The options of a job, {} for a text that is no JSON object.
local function options_of(text)
  local is_json, parsed = pcall(cjson.decode, text or '')
  return is_json and type(parsed) == 'table' and parsed or {}
end
