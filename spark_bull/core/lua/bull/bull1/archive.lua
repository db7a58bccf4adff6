-- Deletes the jobs of up to `limit` entries before a position of a ledger of results, unless they were retried since,
-- and removes the entries.
-- @keys completed failed
-- @returns position of the first entry left, or false without a ledger
-- @include lib: results(archived)
-- @include bull/bull1/lib: remove(remove_jobs)

local SEEN = {completed = key.seen_completed, failed = key.seen_failed}
local found, base = archived(key, arg, function(state, ids)
  local unchanged = {}
  for i, there in ipairs(call('SMISMEMBER', key[state], unpack(ids))) do
    unchanged[i] = there == 1
  end
  return unchanged
end)
for state, ids in pairs(found) do
  if #ids > 0 then
    call('SREM', key[state], unpack(ids))
    call('SREM', SEEN[state], unpack(ids))
    remove_jobs(key, arg, ids)
  end
end
return base or false
