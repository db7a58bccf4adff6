-- @include lib: json_of

-- The options of a job, {} for a text that is no JSON object.
local function options_of(text)
  local parsed = json_of(text or '')
  return type(parsed) == 'table' and parsed or {}
end
