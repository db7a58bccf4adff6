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
