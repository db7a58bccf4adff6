-- Finds the first job of a staged chunk that can't be changed. Changes nothing.
-- @returns {id, action, reason}, or {} for none; see manage_jobs
-- @include lib: manage(managed_jobs)
-- @include {dialect}/lib: manage(mismatch_of)

local packed = call('HGET', key.stage, arg.number)
if not packed then
  return {}
end
local chunk, mismatch = cmsgpack.unpack(packed), mismatch_of(key, arg)
local change_of = managed_jobs.changes_of(arg.base, chunk)
for i = 1, chunk.n do
  local change = change_of(i)
  local reason = mismatch(change)
  if reason then
    return {change.id, change.action, reason}
  end
end
return {}
