-- Of the given jobs, removes each that is in no state, with its logs, children's results and deduplication id. The
-- caller has not found them in a list; `window` entries at both ends of the lists are searched again, since jobs enter
-- there.
-- @keys states...
-- @args ids...
-- @returns the number of removed jobs
-- @include lib: jobs(unplaced_test) once

local function is_listed(job_id)
  for _, state_key in ipairs(key.states) do
    if call('TYPE', state_key).ok == 'list' and (call('LPOS', state_key, job_id, 'MAXLEN', arg.window)
      or call('LPOS', state_key, job_id, 'RANK', -1, 'MAXLEN', arg.window)) then
      return true
    end
  end
  return false
end

-- A key of another type belongs to a queue whose name starts with the job's key.
local PARTS = {
  logs = 'list', lock = 'string', dependencies = 'set', processed = 'hash', failed = 'hash', unsuccessful = 'zset'
}

return once(key.receipt, arg.call, arg.ttl_ms, function()
  local is_unplaced, removed = unplaced_test(key, arg), 0
  for _, job_id in ipairs(arg.ids) do
    if is_unplaced(job_id) and not is_listed(job_id) then
      local job_key = arg.base .. job_id
      local deduplication_id = call('HGET', job_key, 'deid')
      local holder = deduplication_id and arg.base .. 'de:' .. deduplication_id
      if holder and call('TYPE', holder).ok == 'string' and call('GET', holder) == job_id then
        call('DEL', holder)
      end
      for part, kind in pairs(PARTS) do
        if call('TYPE', job_key .. ':' .. part).ok == kind then
          call('UNLINK', job_key .. ':' .. part)
        end
      end
      call('UNLINK', job_key)
      removed = removed + 1
    end
  end
  return removed
end)
