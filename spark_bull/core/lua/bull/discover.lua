-- Finds finished jobs and appends them to the ledger of a reader, once for each time that a job finishes. A call
-- examines about `most` jobs.
-- @keys completed failed seen_completed seen_failed slices_completed slices_failed
-- @args states...
-- @returns {'ok', position after the last entry, 1 if the scan is incomplete}, {'lost'} without a ledger, {'taken',
-- owner} by another query, {'behind', position after the last entry} if that is before `known_end`, or {'recreated', old
-- id counter, new one} unless `accept_recreated`
-- @include lib: results(check_owner follow_sorted found_results results_clock)

local refused = check_owner(key, arg, function() end)
if refused then
  return refused
end
local clock, more = results_clock(arg), false
for _, state in ipairs(arg.states) do
  more = follow_sorted(key, arg, state, clock, tonumber(arg.most)) or more
end
return found_results(key, arg, more and 1 or 0)
