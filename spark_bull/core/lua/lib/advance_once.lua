-- @include lib: once

-- Calls `advance(job)` for each of the packed jobs, unless this call was answered before; returns the results.
local function advance_once(key, arg, advance)
  return once(key.receipt, arg.call, arg.ttl_ms, function()
    local made = {}
    for i, job in ipairs(cmsgpack.unpack(arg.jobs)) do
      made[i] = advance(job)
    end
    return made
  end)
end
