-- Jobs that stall or expire.
-- @include lib: rescue(count_up)
-- @include bull/bull1/lib: events(announce)
-- @include bull/lib: waiting(waiting_list)

-- Returns a function that fails a job without a worker, which has left its state.
local function unrun_failures(key, arg)
  return function(id, reason)
    call('SADD', key.failed, id)
    call('HSET', arg.base .. id, 'failedReason', reason)
    call('HDEL', arg.base .. id, 'expireAt')
    announce(arg, 'failed', id, cjson.encode({message = reason}))
  end
end

-- Returns a function that lets a job that has left `active` wait again, as the next one. If it was started before, and
-- has stalled once more (`counts`), more than `max_stalled` times now, it fails. Returns whether it waits.
local function stalled_requeuer(key, arg)
  local fail = unrun_failures(key, arg)
  return function(id, counts)
    local job_key = arg.base .. id
    local was_started = redis.pcall('HEXISTS', job_key, 'lockAcquired') == 1
    if was_started and counts and count_up(job_key, 'stalledCounter') > tonumber(arg.max_stalled) then
      fail(id, 'job stalled more than allowable limit')
      return false
    end
    call('RPUSH', waiting_list(key), id)
    if was_started then
      announce(arg, 'stalled', id)
    end
    return true
  end
end

-- The field of a job that each start sets.
local STARTED_FIELD = 'lockAcquired'
