-- Adds a row to a job's log, once for each call, and keeps the last `keep` rows (0: all).
-- @returns number of rows, or -1 when the job does not exist
-- @include lib: once

return once(key.receipt, arg.call, arg.ttl_ms, function()
  if call('EXISTS', key.job) == 0 then
    return -1
  end
  local count, keep = call('RPUSH', key.logs, arg.row), tonumber(arg.keep)
  if keep > 0 and count > keep then
    call('LTRIM', key.logs, -keep, -1)
    return keep
  end
  return count
end)
