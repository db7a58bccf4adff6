-- A text as JSON, as JavaScript writes it: cjson escapes slashes, too.
local function json_text(text)
  local encoded = cjson.encode(text)
  return string.find(text, '/', 1, true) and (string.gsub(encoded, '\\/', '/')) or encoded
end
