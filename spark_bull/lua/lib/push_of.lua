-- The command that puts a job among the waiting ones, at the end that its options ask for.
local function push_of(opts)
  local is_json, parsed = pcall(cjson.decode, opts)
  return is_json and type(parsed) == 'table' and parsed.lifo == true and 'RPUSH' or 'LPUSH'
end
