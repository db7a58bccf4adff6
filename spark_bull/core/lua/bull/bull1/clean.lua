-- Of a state's next jobs, removes each that has no lock and was added by `before`.
-- @returns {next position, '' at the end, ids of the removed jobs}
-- @include lib: jobs(added_at) once remove(sweep)
-- @include bull/bull1/lib: remove(remove_jobs)

local before = tonumber(arg.before)

return once(key.receipt, arg.call, arg.ttl_ms, function()
  local position, ids = sweep(key, arg, function(job_id)
    local job_key = arg.base .. job_id
    if call('EXISTS', job_key .. ':lock') == 1 then
      return false
    end
    return (added_at(job_key) or 0) <= before
  end)
  remove_jobs(key, arg, ids)
  if #ids > 0 or position == '' then
    -- The message of Bull 1.1 and 2 to the queue's other processes, on a channel without prefix.
    local listed = #ids > 0 and cjson.encode(ids) or '[]'
    call('PUBLISH', 'cleaned@' .. arg.queue, '["' .. arg.token .. '",' .. listed .. ',"' .. arg.state .. '"]')
  end
  return {position, ids}
end)
