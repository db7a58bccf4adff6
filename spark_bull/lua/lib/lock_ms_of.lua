-- The duration of a job's lock, ms: that of its options, else `default`. Other options are not parsed.
local function lock_ms_of(opts, default)
  if not opts or not string.find(opts, '"lockMs":', 1, true) then
    return default
  end
  local is_json, parsed = pcall(cjson.decode, opts)
  local own = is_json and type(parsed) == 'table' and parsed.lockMs
  return type(own) == 'number' and own >= 1 and string.format('%.0f', own) or default
end
