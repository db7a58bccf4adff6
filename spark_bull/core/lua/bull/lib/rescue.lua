-- Jobs that stall or expire.
-- @include lib: rescue(count_up has_expired look_again next_expiry_of) settle_jobs(finished_set) values(options_of)
-- @include bull/lib: add_jobs(free_debounce) events(publish) settle_jobs(finished_of) waiting(waiting_list)
-- @include {dialect}/lib: rescue(unrun_failures) settle_jobs(keep_rule) waiting(leave_wait)

-- Returns a function of the id and the reason that fails a job without a worker, which has left its state; `published`
-- is the reason in its message, which is `reason` by default.
local function unrun_failures(key, arg, now)
  local finished = finished_of(arg.base, key.failed, now)
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
  local fail = unrun_failures(key, arg, now)
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

-- Jobs that expire before they start.

-- The field of a job that each start sets.
local STARTED_FIELD = 'processedOn'

-- Number of jobs that are looked at in the list of waiting jobs, those that come next; workers take fewer of them in
-- PAUSE_MS, after which it is looked at again.
local NEAR, PAUSE_MS = 5000, 200
-- Number of jobs that one call examines or fails.
local SHARE = 200

-- Moves the ids of jobs that have expired from `expiry` to the SET `expired`; delayed ones fail. Returns how many
-- have failed.
local function gather_expired(key, arg, now, fail)
  local failed = 0
  local due = call('ZRANGEBYSCORE', key.expiry, '-inf', now, 'LIMIT', 0, SHARE)
  for _, id in ipairs(due) do
    if has_expired(arg.base .. id, now) then
      if call('ZREM', key.delayed, id) == 1 then
        fail(id)
        failed = failed + 1
      else
        call('SADD', key.expired, id)
      end
    end
  end
  if #due > 0 then
    call('ZREM', key.expiry, unpack(due))
  end
  return failed
end

-- Of the next waiting jobs, fails each that has expired; `is_behind`: some of them may still be in `expiry`. Ids are
-- overwritten by a mark that is no id, and one LREM removes all marks: so it costs no search per job. Returns how many
-- have failed.
local function fail_near(key, arg, now, fail, is_behind)
  local ids = call('LRANGE', key.wait, -NEAR, -1)
  if #ids == 0 then
    return 0
  end
  local is_expired, gone = call('SMISMEMBER', key.expired, unpack(ids)), {}
  local times = is_behind and call('ZMSCORE', key.expiry, unpack(ids)) or {}
  for i = #ids, 1, -1 do
    if #gone == SHARE then
      break
    end
    local is_due = times[i] and tonumber(times[i]) <= now
    if is_due then
      call('ZREM', key.expiry, ids[i])
    end
    if is_expired[i] == 1 or is_due then
      call('SREM', key.expired, ids[i])
      if has_expired(arg.base .. ids[i], now) then
        call('LSET', key.wait, i - #ids - 1, '')
        gone[#gone + 1] = ids[i]
      end
    end
  end
  if #gone > 0 then
    call('LREM', key.wait, -#gone, '')
  end
  for _, id in ipairs(gone) do
    fail(id)
  end
  return #gone
end

-- Forgets ids in `expired` whose jobs were removed or have started, a few per call.
local function forget_others(key, arg, now)
  for _, id in ipairs(call('SRANDMEMBER', key.expired, 20)) do
    if not has_expired(arg.base .. id, now) then
      call('SREM', key.expired, id)
    end
  end
end

-- Fails jobs that have expired: delayed ones, and the next waiting ones. Others stay in the list until they
-- are among the next ones, as it takes long to find them. Returns how many have failed.
local function expire_jobs(key, arg, now)
  local fail_unrun = unrun_failures(key, arg, now)
  local function fail(id)
    leave_wait(key, {id})
    fail_unrun(id, 'expired')
  end

  local failed, near = gather_expired(key, arg, now, fail), 0
  if call('EXISTS', key.expired) == 1 then
    local next_expiry = next_expiry_of(key.expiry)
    near = fail_near(key, arg, now, fail, next_expiry and next_expiry <= now)
    forget_others(key, arg, now)
    look_again(key, near > 0 and now or now + PAUSE_MS)
  end
  return failed + near
end

-- Lets jobs that have started and wait again never expire: Bull counts no starts without a failure, so that they may
-- look as if they had not started, once they are claimed again.
local function forget_expiry(settling)
  for _, kind in ipairs({'delayed', 'returned'}) do
    for _, job in ipairs(settling.outcomes[kind]) do
      local id = type(job) == 'table' and job.id or job
      if settling.mine[id] then
        redis.pcall('HDEL', settling.base .. id, 'expireAt')
      end
    end
  end
end
