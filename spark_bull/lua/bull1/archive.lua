-- Deletes jobs whose results have been taken, unless they have been retried since, and cuts their entries off the ledger:
-- up to `limit` before a position.
-- @keys completed failed ledger track seen_completed seen_failed
-- @args base position limit
-- @returns position of the first entry that is left, or false without a ledger
-- @include bull1/lib/remove_jobs
-- @include lib/archived

local call = redis.call
local SEEN = {completed = key.seen_completed, failed = key.seen_failed}
local found, base = archived(key, arg, function(state, ids)
  local still = {}
  for i, there in ipairs(call('SMISMEMBER', key[state], unpack(ids))) do
    still[i] = there == 1
  end
  return still
end)
for state, ids in pairs(found) do
  if #ids > 0 then
    call('SREM', key[state], unpack(ids))
    call('SREM', SEEN[state], unpack(ids))
    remove_jobs(key, arg, ids)
  end
end
return base or false
