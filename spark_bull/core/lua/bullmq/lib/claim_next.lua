-- @include bullmq/lib: claim_jobs emit

-- Claims up to `limit` jobs. As in Node, there is no event "drained" when a pause or a limit of the queue kept the call
-- from claiming.
local function claim_next(key, arg, now, limit, may_drain)
  local claimed, rows, is_held = claim_jobs(key, arg, now, limit)
  if may_drain and #claimed.ids == 0 and not claimed.next_due and not (limit > 0 and is_held)
    and redis.call('EXISTS', key.wait, key.active, key.prioritized) == 0 then
    emit(key, arg, 'drained')
  end
  return claimed, rows
end
