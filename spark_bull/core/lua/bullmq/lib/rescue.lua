-- Jobs that stall, or expire before they start.
-- @include lib: manage(finish_unclaimed) rescue(count_up has_expired look_again)
-- @include bullmq/lib: events(emit event_limit) waiting(enqueue_job waiting_list)

local function is_scheduled(key, job_key)
  local scheduler = call('HGET', job_key, 'rjk')
  return scheduler and (call('EXISTS', key.repeats .. ':' .. scheduler) == 1 or call('ZSCORE', key.repeats, scheduler))
end

-- Returns a function that lets a job that has left `active` wait again, as the next one. If it has stalled once more
-- (`counts`), more than `max_stalled` times now, it gets a deferred failure, with which the next worker fails it, unless
-- a scheduler made it. Returns whether it waits: always.
local function stalled_requeuer(key, arg)
  call('XTRIM', key.events, 'MAXLEN', '~', event_limit(key))
  return function(id, counts)
    local job_key = arg.base .. id
    local stalled = counts and count_up(job_key, 'stc')
    if stalled and stalled > tonumber(arg.max_stalled) and not is_scheduled(key, job_key) then
      call('HSET', job_key, 'defa', 'job stalled more than allowable limit')
    end
    enqueue_job(key, arg.bullmq_version, id, 0, 'RPUSH')
    emit(key, arg, 'waiting', 'jobId', id, 'prev', 'active')
    emit(key, arg, 'stalled', 'jobId', id)
    return true
  end
end

-- The field of a job that each start sets.
local STARTED_FIELD = 'ats'

-- Number of entries of the list of waiting jobs that one call examines, and of jobs that it fails.
local EXAMINED, SHARE = 5000, 100
-- The list is read again after this many times the entries of the last time, in ms per entry, at least after PAUSE_MS: so
-- it takes a few percent of the time of Redis.
local MS_PER_ENTRY, PAUSE_MS = 0.01, 200
-- To remove jobs from within a list, Redis compares all ids between them and an end of the list. Further from it than
-- NEAR, this takes ms; then the next call comes after this time for each id, so it takes a few percent, too.
local NEAR, MS_PER_COMPARED = 100000, 0.0004
-- A position is forgotten when no call has continued from it for so long.
local POSITION_TTL_MS = 60000

-- Gives jobs that have expired a deferred failure, with which a worker fails them without running them, and takes them
-- out of their state. Those in a list go to the SET `expired`; parents that wait for their children stay. Returns the ids
-- of those taken out, and whether others may have expired.
local function gather_expired(key, arg, now)
  local gone = {}
  local due = call('ZRANGEBYSCORE', key.expiry, '-inf', now, 'LIMIT', 0, SHARE)
  for _, id in ipairs(due) do
    local job_key = arg.base .. id
    if has_expired(job_key, now) then
      call('HSET', job_key, 'defa', 'expired')
      call('HDEL', job_key, 'expireAt')
      if call('ZREM', key.delayed, id) == 1 or call('ZREM', key.prioritized, id) == 1 then
        gone[#gone + 1] = id
      elseif not call('ZSCORE', key.waiting_children, id) then
        call('SADD', key.expired, id)
      end
    end
  end
  if #due > 0 then
    call('ZREM', key.expiry, unpack(due))
  end
  return gone, #due == SHARE
end

-- Whether a job of the SET `expired` still waits to fail: it was not removed, failed or added again since.
local function is_to_fail(arg, id)
  return call('HGET', arg.base .. id, 'defa') == 'expired'
end

-- Forgets jobs of `expired` that others have failed or removed, a few per call.
local function forget_others(key, arg)
  for _, id in ipairs(call('SRANDMEMBER', key.expired, 20)) do
    if not is_to_fail(arg, id) then
      call('SREM', key.expired, id)
    end
  end
end

-- Removes `count` marks, which begin `position` ids from the end of a list, from the nearer end. Returns how long to wait
-- until the next call, ms.
local function remove_marks(list, position, count)
  local to_head = call('LLEN', list) - position
  call('LREM', list, to_head < position and count or -count, '')
  return math.max(0, math.min(position, to_head) - NEAR) * MS_PER_COMPARED
end

-- Takes jobs of `expired` out of the next part of a list, from the end from which jobs are claimed. Ids are overwritten
-- by a mark that is no id, and one LREM removes all marks. Returns their ids, and when to go on, ms from now.
local function take_listed(key, arg, list)
  local gone = {}
  local position = tonumber(call('GET', key.expiry_position) or 0)
  local ids = call('LRANGE', list, -position - EXAMINED, -position - 1)
  local is_expired = #ids > 0 and call('SMISMEMBER', key.expired, unpack(ids)) or {}
  local place = #ids
  while place > 0 and #gone < SHARE do
    local id = ids[place]
    if is_expired[place] == 1 then
      call('SREM', key.expired, id)
      if is_to_fail(arg, id) then
        call('LSET', list, place - #ids - 1 - position, '')
        gone[#gone + 1] = id
      end
    end
    place = place - 1
  end
  local pause = #gone > 0 and remove_marks(list, position, #gone) or 0
  position = position + #ids - place - #gone
  if place > 0 or #ids == EXAMINED then
    call('SET', key.expiry_position, position, 'PX', POSITION_TTL_MS)
    return gone, pause
  end
  call('DEL', key.expiry_position)
  forget_others(key, arg)
  return gone, math.max(PAUSE_MS, position * MS_PER_ENTRY)
end

-- Fails jobs that have expired: delayed, prioritized and waiting ones. A parent that waits for its children fails after
-- them. Returns how many jobs have failed.
local function expire_jobs(key, arg, now)
  local gone, is_behind = gather_expired(key, arg, now)
  if is_behind then
    look_again(key, now)
  elseif call('EXISTS', key.expired) == 1 then
    local listed, pause = take_listed(key, arg, (waiting_list(key, arg.bullmq_version)))
    for _, id in ipairs(listed) do
      gone[#gone + 1] = id
    end
    look_again(key, now + pause)
  end
  local changes, failed = {}, 0
  for i, id in ipairs(gone) do
    changes[i] = {id = id, key = arg.base .. id, action = 'fail', reason = 'expired'}
  end
  for _ in pairs(#gone > 0 and finish_unclaimed(key, arg, changes, now) or {}) do
    failed = failed + 1
  end
  return failed
end
