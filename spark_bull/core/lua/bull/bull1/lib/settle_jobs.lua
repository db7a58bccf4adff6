-- @include lib: group_queue(group_places) group_room(refill_groups rest_groups)
-- @include lib: outcomes(drop_missing limited_by outcome_columns settle_alone waiting_again) release_owned
-- @include lib: stalls(count_returns) waiting(insert_near)
-- @include bull/bull1/lib: events(announce)
-- @include bull/lib: delayed(delay_job delay_jobs) expiry(forget_expiry) json(json_text)
-- @include bull/lib: settle_jobs(save_attempt undo_starts) waiting(waiting_list)

local function complete_jobs(key, arg, jobs, mine, lost)
  local call, done = redis.call, {}
  for i, id in ipairs(jobs.ids) do
    local job_key, value, keep = arg.base .. id, jobs.value or jobs.values[i], jobs.keeps[i]
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
  rest_groups(key, arg, outcomes, left, now)
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
  forget_expiry(base, outcomes, mine)
  delay_jobs(key, outcomes.delayed or {}, mine, now)
  undo_starts(key, base, outcomes.unstarted or {}, mine)
  return_jobs(target, outcomes.unstarted or {}, mine)
  count_returns(base, outcomes.counted_returns or {}, mine)
  return_jobs(target, outcomes.returned or {}, mine)
  local limited_ms = limited_by(outcomes, mine)
  if limited_ms > 0 then
    call('SET', key.rate_limited, '1', 'PX', limited_ms)
  end
  refill_groups(key, arg, now, left, waiting_again(outcomes, mine))
  return {mine = mine, lost = lost, may_drain = false}
end
