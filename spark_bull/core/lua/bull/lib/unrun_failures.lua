-- @include lib: finished_set options_of
-- @include bull/lib: finished_of free_debounce publish
-- @include {dialect}/lib: keep_rule

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
