-- Jobs whose worker has died, and how often that has happened.
-- @include lib: finished(finished_set) json(options_of) stalls(count_up)
-- @include bull/lib: deduplication(free_debounce) events(publish) finished(finished_of) waiting(waiting_list)
-- @include {dialect}/lib: finished(keep_rule) stalls(unrun_failures)

-- Returns a function of the id and the reason that fails a job without a worker, which has left its state; `published`
-- is the reason in its message, which is `reason` by default.
local function unrun_failures(key, arg, now)
  local call, finished = redis.call, finished_of(arg.base, key.failed, now)
  return function(id, reason, published)
    local job_key = arg.base .. id
    local keep = keep_rule(options_of(call('HGET', job_key, 'opts')), 'removeOnFail') or {}
    free_debounce(arg.base, id)
    call('ZADD', key.failed, string.format('%.0f', now), id)
    call('HSET', job_key, 'failedReason', reason, 'finishedOn', string.format('%.0f', now))
    call('HDEL', job_key, 'expireAt')
    publish(arg, 'failed', key.failed, '{"jobId":"' .. id .. '", "val": "' .. (published or reason) .. '"}')
    if keep.count == 0 then
      call('UNLINK', job_key, job_key .. ':logs')
      call('ZREM', key.failed, id)
    else
      finished_set.apply_rule(finished, keep)
    end
  end
end

-- Returns a function that lets a job that has left `active` wait again, as the next one. If it has stalled once more
-- (`counts`), more than `max_stalled` times now, it fails. Returns whether it waits.
local function stalled_requeuer(key, arg, now)
  local call, fail = redis.call, unrun_failures(key, arg, now)
  return function(id, counts)
    local stalled = counts and count_up(arg.base .. id, 'stalledCounter')
    if stalled and stalled > tonumber(arg.max_stalled) then
      fail(id, 'job stalled more than allowable limit', 'job stalled more than maxStalledCount')
      return false
    end
    call('RPUSH', waiting_list(key), id)
    publish(arg, 'stalled', key.stalled .. '@', id)
    return true
  end
end
