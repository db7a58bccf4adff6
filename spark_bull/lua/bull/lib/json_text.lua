-- A text as JSON, as JavaScript writes it: cjson escapes slashes, too.
local function json_text(text)
  return (string.gsub(cjson.encode(text), '\\/', '/'))
end
