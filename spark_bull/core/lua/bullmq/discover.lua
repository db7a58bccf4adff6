-- Finds finished jobs and appends them to the ledger of a reader, once for each time that a job finishes: first from
-- the event stream, which also has jobs that were removed at once, then from the ZSETs, for jobs whose events were
-- trimmed before they were read. Node writes both in one script: once the stream is read to its end, an unseen job of a
-- ZSET has no unread event. Where the stream has further events than those up to `until_event` (of the time
-- `until_at`), jobs of the ZSETs that may have finished later go into `delivered_early`, for the time when their events
-- are read. A call examines about `most` events and jobs. With `events_only` the ZSETs are left to a later call.
-- @keys active completed delayed failed paused prioritized seen_completed seen_failed slices_completed slices_failed wait waiting_children
-- @args states...
-- @returns {'ok', position after the last entry, 0 if the scan is complete, 1 if jobs are left, 2 if events are left,
-- id of the last event read, number of ended jobs that are unaccounted for because events were trimmed unread (-1:
-- unknown; with `strict` it is reported until a call without it)}, {'lost'} without a ledger, {'taken', owner} by
-- another query, {'behind', position after the last entry} if that is before `known_end`, or {'recreated', old id
-- counter, new one} unless `accept_recreated`
-- @include lib: events(is_behind last_event) results(check_owner follow_sorted found_results results_clock)
-- @include bullmq/lib: results(follow_events results_balance)

local refused = check_owner(key, arg, function() end)
if refused then
  return refused
end
local clock, most = results_clock(arg), tonumber(arg.most)
if arg.until_at ~= '' and is_behind(last_event(key.events), arg.until_event) then
  clock.delivered_early, clock.early_since = key.delivered_early, tonumber(arg.until_at) - clock.lookback_ms
end
local more_events, cursor = follow_events(key, arg, most)
if more_events then
  return found_results(key, arg, 2, cursor, 0)
end
if arg.events_only == '1' then
  results_balance.save_after_events(key, arg)
  return found_results(key, arg, 0, cursor, 0)
end
if not clock.delivered_early then
  call('UNLINK', key.delivered_early)
end
local more = false
for _, state in ipairs(arg.states) do
  more = follow_sorted(key, arg, state, clock, most) or more
end
return found_results(key, arg, more and 1 or 0, cursor, more and 0 or results_balance.unaccounted(key, arg))
