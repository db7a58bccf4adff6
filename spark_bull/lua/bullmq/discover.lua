-- Finds jobs that have finished, and writes them into the ledger of a reader, each time one finishes once: first from the
-- stream of events, which knows those too that were removed at once, then from the ZSETs, for what had left the stream
-- before it was read. A job enters both in one script, so with the stream read to its end, what is in a ZSET and wasn't
-- seen has no event to come. Where the stream is read up to `until_event` only, jobs that may have finished since then,
-- at `until_at`, are noted in `told`, for when their events are read. One call looks at about `most` events and jobs.
-- With `events_only` the ZSETs are left to a later call.
-- @keys id wait paused active delayed prioritized waiting_children completed failed meta events ledger track seen_completed seen_failed told slices_completed slices_failed
-- @args base owner accept_recreated strict events_only lookback_ms slice_ms most ttl_ms until_completed until_failed until_event until_at until_ended states...
-- @returns {'ok', position behind the last entry, 0 if all was looked at, 1 if not, 2 if not even all events, id of the last
-- event read, how many ended jobs are unaccounted for because events left the stream unread (-1: an unknown number); with
-- `strict` that is reported until a call without it},
-- {'lost'} without a ledger, {'taken', owner} by another reader, or {'recreated', id counter then, now} unless `accept_recreated`
-- @include bullmq/lib/follow_events
-- @include bullmq/lib/unaccounted_jobs
-- @include lib/check_owner
-- @include lib/follow_sorted
-- @include lib/results_clock

local refused = check_owner(key, arg, function() end)
if refused then
  return refused
end
local clock, most = results_clock(arg), tonumber(arg.most)
if arg.until_at ~= '' then
  clock.told, clock.told_since = key.told, tonumber(arg.until_at) - clock.lookback_ms
end
local more_events, cursor = follow_events(key, arg, most)
if more_events then
  return found_results(key, arg, 2, cursor, 0)
end
if arg.events_only == '1' then
  save_event_balance(key, arg)
  return found_results(key, arg, 0, cursor, 0)
end
if not clock.told then
  redis.call('UNLINK', key.told)
end
local more = false
for _, state in ipairs(arg.states) do
  more = follow_sorted(key, arg, state, clock, most) or more
end
return found_results(key, arg, more and 1 or 0, cursor, more and 0 or unaccounted_jobs(key, arg))
