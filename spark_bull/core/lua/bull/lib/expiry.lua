-- Jobs that expire before they start.
-- @include lib: expiry(has_expired look_again next_expiry_of)
-- @include {dialect}/lib: stalls(unrun_failures) waiting(leave_wait)

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
  local call, failed = redis.call, 0
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
  local call, ids = redis.call, redis.call('LRANGE', key.wait, -NEAR, -1)
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
  for _, id in ipairs(redis.call('SRANDMEMBER', key.expired, 20)) do
    if not has_expired(arg.base .. id, now) then
      redis.call('SREM', key.expired, id)
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
  if redis.call('EXISTS', key.expired) == 1 then
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
