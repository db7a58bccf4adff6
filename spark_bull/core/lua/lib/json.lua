-- JSON that others may have written.
-- @include lib: numbers(is_true)

-- The value of JSON text, nil for what is none. Half of a pair of UTF-16, which JavaScript writes as an escape and cjson
-- rejects, becomes U+FFFD, as Node sends it.
local function json_of(text)
  local is_json, value = pcall(cjson.decode, text)
  if not is_json and string.find(text, '\\u[dD][89a-fA-F]') then
    -- JSON has no control characters: \1 stands for the backslash of what is whole.
    text = string.gsub(text, '\\\\', '\1\1')
    text = string.gsub(text, '\\(u[dD][89abAB]%x%x)\\(u[dD][c-fC-F]%x%x)', '\1%1\1%2')
    text = string.gsub(text, '\\u[dD][89a-fA-F]%x%x', '\\ufffd')
    is_json, value = pcall(cjson.decode, (string.gsub(text, '\1', '\\')))
  end
  return is_json and value or nil
end

-- The options of a job, {} for a text that is no JSON object.
local function options_of(text)
  local parsed = json_of(text or '')
  return type(parsed) == 'table' and parsed or {}
end

-- The command that pushes a job to the end of the waiting list that its options name.
local function push_of(opts)
  -- Few jobs have this option, and reading JSON takes time.
  if not string.find(opts or '', 'lifo', 1, true) then
    return 'LPUSH'
  end
  return is_true(options_of(opts).lifo) and 'RPUSH' or 'LPUSH'
end
