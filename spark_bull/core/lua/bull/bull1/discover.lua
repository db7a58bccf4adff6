-- Finds finished jobs and appends them to the ledger of a reader. SETs have no times: each is compared with the SET of
-- the jobs seen before, in both directions, whenever the queue has changed. A call examines about `most` jobs.
-- @keys slices_completed slices_failed
-- @args states...
-- @returns {'ok', position after the last entry, 1 if the scan is incomplete}, {'lost'} without a ledger, {'taken',
-- owner} by another query, {'behind', position after the last entry} if that is before `known_end`, or {'recreated', old
-- id counter, new one} unless `accept_recreated`
-- @include lib: results(check_owner found_results)
-- @include bull/bull1/lib: results(follow_set sign_of)

local refused = check_owner(key, arg, function()
  -- Ids start again at 1.
  call('UNLINK', key.seen_completed, key.seen_failed)
end)
if refused then
  return refused
end
local sign, more = sign_of(key), false
for _, state in ipairs(arg.states) do
  more = follow_set(key, arg, state, sign, tonumber(arg.most)) or more
end
return found_results(key, arg, more and 1 or 0)
