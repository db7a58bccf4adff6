-- @include lib/once
-- @include lib/time_ms

-- Changes the jobs of a chunk, unless this call was answered before. `manage(chunk, from, now)` returns {next, outcomes};
-- see manage_jobs. Returns {next, outcomes}.
local function manage_once(key, arg, manage)
  return once(key.receipt, arg.number .. ':' .. arg.from, arg.ttl_ms, function()
    local result = manage(cmsgpack.unpack(arg.chunk), tonumber(arg.from), time_ms())
    return {result.next, result.outcomes}
  end)
end
