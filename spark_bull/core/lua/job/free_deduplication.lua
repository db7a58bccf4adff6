-- Frees a deduplication id, if it belongs to the job, or without `job_id` to any.
-- @returns 1 if it was freed, else 0
-- @include lib: once

return once(key.receipt, arg.call, arg.ttl_ms, function()
  if arg.job_id ~= '' and call('GET', key.holder) ~= arg.job_id then
    return 0, true
  end
  return call('DEL', key.holder)
end)
