-- @include lib/managed_jobs

-- The first job of a staged chunk that can't be changed: {row, reason}; {} for none. `mismatch`: see managed_jobs.manage.
local function check_managed(key, arg, mismatch)
  local packed = redis.call('HGET', key.stage, arg.number)
  if not packed then
    return {}
  end
  local chunk = cmsgpack.unpack(packed)
  local change_of = managed_jobs.changes_of(arg.base, chunk)
  for i = 1, chunk.n do
    local change = change_of(i)
    local reason = mismatch(change)
    if reason then
      return {change.id, change.action, reason}
    end
  end
  return {}
end
