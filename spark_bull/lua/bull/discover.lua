-- Finds jobs that have finished, and writes them into the ledger of a reader, each time one finishes once. One call looks
-- at about `most` jobs.
-- @keys id completed failed ledger track seen_completed seen_failed slices_completed slices_failed
-- @args base owner accept_recreated lookback_ms slice_ms most ttl_ms until_completed until_failed states...
-- @returns {'ok', position behind the last entry, 1 if there is more to look at}, {'lost'} without a ledger, {'taken',
-- owner} by another reader, or {'recreated', id counter then, now} unless `accept_recreated`
-- @include lib/check_owner
-- @include lib/follow_sorted
-- @include lib/results_clock

local refused = check_owner(key, arg, function() end)
if refused then
  return refused
end
local clock, more = results_clock(arg), false
for _, state in ipairs(arg.states) do
  more = follow_sorted(key, arg, state, clock, tonumber(arg.most)) or more
end
return found_results(key, arg, more and 1 or 0)
