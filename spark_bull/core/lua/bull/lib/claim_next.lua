-- @include bull/lib: claim_jobs delay_over_limit publish

-- Claims up to `limit` jobs.
local function claim_next(key, arg, now, limit, may_drain)
  local call = redis.call
  local processed_on, channel = string.format('%.0f', now), arg.base .. 'active@' .. arg.token
  local limits = {delays = arg.limiter_delays == '1'}
  local claimed, rows = claim_jobs(key, arg, now, limit, limits, function(job_key, id)
    if limits.delays and delay_over_limit(key, arg, id, now) then
      return 'delayed'
    end
    call('HSET', job_key, 'processedOn', processed_on)
    publish(arg, 'active', channel, id)
  end)
  if may_drain and #claimed.ids == 0 and call('EXISTS', key.wait) == 0 then
    publish(arg, 'drained', arg.base .. 'drained', '')
  end
  return claimed, rows
end
