-- @include bull/lib/delay_job
-- @include bull/lib/delay_jobs
-- @include bull/lib/json_text
-- @include bull/lib/save_attempt
-- @include bull/lib/undo_starts
-- @include bull/lib/waiting_list
-- @include bull1/lib/announce
-- @include bull1/lib/promote_group
-- @include lib/drop_missing
-- @include lib/group_places
-- @include lib/insert_near
-- @include lib/limited_by
-- @include lib/outcome_columns
-- @include lib/refill_groups
-- @include lib/release_owned
-- @include lib/settle_alone
-- @include lib/waiting_again
-- @include lib/waits

local function complete_jobs(key, arg, jobs, mine, lost)
  local call, done = redis.call, {}
  for i, id in ipairs(jobs.ids) do
    local job_key, value, keep = arg.base .. id, jobs.values[i], jobs.keeps[i]
    if mine[id] and settle_alone(key, arg.base, id, lost, call, 'HSET', job_key, 'returnvalue', value) then
      announce(arg, 'completed', id, value == '' and 'null' or value)
      if keep and keep.count == 0 then
        call('UNLINK', job_key, job_key .. ':logs')
      else
        done[#done + 1] = id
      end
    end
  end
  if #done > 0 then
    call('SADD', key.completed, unpack(done))
  end
end

-- Bull 1 publishes each attempt that has failed, also one that is followed by another.
local function announce_failed(arg, job)
  announce(arg, 'failed', job.id, '{"message":' .. json_text(job.reason) .. '}')
end

-- Jobs that are given back become the next ones, in their old order.
local function return_jobs(target, returned, mine)
  for i = #returned, 1, -1 do
    if mine[returned[i]] then
      redis.call('RPUSH', target, returned[i])
    end
  end
end

-- Settles outcomes of claimed jobs; see outcomes.py. Returns what work_once expects: Bull 1 publishes no "drained".
local function settle_jobs(key, arg, outcomes, now)
  local call, base, target = redis.call, arg.base, waiting_list(key)
  local jobs = outcome_columns(base, outcomes)
  local mine, lost, left = release_owned(key, base, outcomes, jobs.all, {})
  drop_missing(base, jobs.all, mine, lost)
  complete_jobs(key, arg, jobs, mine, lost)
  for _, job in ipairs(outcomes.failed or {}) do
    if mine[job.id] and settle_alone(key, base, job.id, lost, save_attempt, base .. job.id, job) then
      call('SADD', key.failed, job.id)
      announce_failed(arg, job)
    end
  end
  for _, job in ipairs(outcomes.retried or {}) do
    if mine[job.id] and settle_alone(key, base, job.id, lost, save_attempt, base .. job.id, job) then
      if job.delay > 0 then
        delay_job(key, job.id, now + job.delay)
      elseif group_places.comes_near(key, left, job.id) and not job.lifo then
        insert_near(target, {job.id})
      else
        call(job.lifo and 'RPUSH' or 'LPUSH', target, job.id)
      end
      announce_failed(arg, job)
    end
  end
  delay_jobs(key, outcomes.delayed or {}, mine, now)
  undo_starts(base, outcomes.unstarted or {}, mine, 'lockAcquired')
  return_jobs(target, outcomes.unstarted or {}, mine)
  return_jobs(target, outcomes.returned or {}, mine)
  local limited_ms = limited_by(outcomes, mine)
  if limited_ms > 0 then
    call('SET', key.rate_limited, '1', 'PX', limited_ms)
  end
  refill_groups(key, arg, now, left, waiting_again(outcomes, mine), waits, function(ids)
    promote_group(key, ids)
  end)
  return {mine = mine, lost = lost, may_drain = false}
end
