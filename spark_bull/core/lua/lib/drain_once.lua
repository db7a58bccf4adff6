-- @include lib: once sweep

-- Removes those of a state's next jobs for which `matches(job_id)` is true (see sweep), unless this call was answered
-- before.
-- Returns {next position, '' at the end, number of removed jobs}.
local function drain_once(key, arg, remove_jobs, matches)
  return once(key.receipt, arg.call, arg.ttl_ms, function()
    local position, ids = sweep(key, arg, matches)
    remove_jobs(key, arg, ids)
    return {position, #ids}
  end)
end
