-- Finds jobs that have finished, and writes them into the ledger of a reader. SETs know no time: each is compared with
-- those seen before, in both directions, whenever anything in the queue has changed. One call looks at about `most` jobs.
-- @keys id wait active delayed paused completed failed ledger track seen_completed seen_failed slices_completed slices_failed
-- @args base owner accept_recreated lookback_ms slice_ms most ttl_ms until_completed until_failed states...
-- @returns {'ok', position behind the last entry, 1 if there is more to look at}, {'lost'} without a ledger, {'taken',
-- owner} by another reader, or {'recreated', id counter then, now} unless `accept_recreated`
-- @include bull1/lib/follow_set
-- @include lib/check_owner
-- @include lib/results_clock

local refused = check_owner(key, arg, function()
  -- Ids begin anew.
  redis.call('UNLINK', key.seen_completed, key.seen_failed)
end)
if refused then
  return refused
end
local sign, more = sign_of(key), false
for _, state in ipairs(arg.states) do
  more = follow_set(key, arg, state, sign, tonumber(arg.most)) or more
end
return found_results(key, arg, more and 1 or 0)
