-- Jobs end, or return to the queue.
-- @include lib: expiry(expire_again) finished(count_finished finished_set) group_queue(group_places)
-- @include lib: group_room(refill_groups rest_groups) numbers(priority_of)
-- @include lib: outcomes(drop_missing limited_by outcome_columns settle_alone waiting_again) release_owned
-- @include lib: stalls(count_returns count_up) waiting(JOBS_BEFORE)
-- @include bull/lib: deduplication(free_debounce) delayed(delay_jobs) events(publish) expiry(forget_expiry)
-- @include bull/lib: finished(finished_of) json(json_text) waiting(priority_inserts waiting_list)
-- @include {dialect}/lib: delayed(delay_job) expiry(STARTED_FIELD)

-- Stores a failed attempt in the job's hash.
local function save_attempt(job_key, job)
  redis.call('HSET', job_key, 'stacktrace', job.stack, 'failedReason', job.reason)
  count_up(job_key, 'attemptsMade')
end

-- Deletes the field that a claim has set from jobs without an attempt or a stall before: Bull does not count starts.
-- The counter of stalls is 1,000,000 at first if the job may run at most once.
local function undo_starts(key, base, ids, mine)
  for _, id in ipairs(ids) do
    if mine[id] then
      local row = redis.pcall('HMGET', base .. id, 'attemptsMade', 'stalledCounter')
      if not row.err and (tonumber(row[1]) or 0) == 0 and (tonumber(row[2]) or 0) % 1000000 == 0 then
        redis.call('HDEL', base .. id, STARTED_FIELD)
        expire_again(key, base .. id, id)
      end
    end
  end
end

-- Moves a job to its finished state by its keep rule, and publishes `event`. `finished`: see finished_set.by_rule;
-- `field`: returnvalue or failedReason; `text`: its value.
local function finish_bull(arg, event, finished, job_id, field, text, keep)
  local call, job_key = redis.call, arg.base .. job_id
  if keep and keep.count == 0 then
    call('UNLINK', job_key, job_key .. ':logs')
  else
    call('HSET', job_key, field, text, 'finishedOn', finished.finished_on)
    finished.add(job_id, keep)
  end
  publish(arg, event, finished.state, '{"jobId":' .. json_text(job_id) .. ',"val":' .. json_text(text) .. '}')
end

local function retry_jobs(key, base, retried, mine, lost, left, now)
  local call, target, prioritized, near = redis.call, waiting_list(key), {}, {}
  for _, job in ipairs(retried) do
    if mine[job.id] and settle_alone(key, base, job.id, lost, save_attempt, base .. job.id, job) then
      local priority = priority_of(base .. job.id)
      if job.delay > 0 then
        delay_job(key, job.id, now + job.delay)
      elseif group_places.comes_near(key, left, job.id) and not job.lifo then
        near[#near + 1] = {id = job.id, priority = priority > 0 and priority or math.huge}
      elseif priority > 0 then
        prioritized[#prioritized + 1] = {id = job.id, priority = priority}
      else
        call(job.lifo and 'RPUSH' or 'LPUSH', target, job.id)
      end
    end
  end
  priority_inserts.many(key, target, prioritized)
  priority_inserts.near(key, target, near, JOBS_BEFORE)
end

-- Jobs that are given back become the next ones of their priority, in their old order.
local function return_jobs(key, base, returned, mine)
  local jobs = {}
  for _, id in ipairs(returned) do
    if mine[id] then
      local priority = priority_of(base .. id)
      jobs[#jobs + 1] = {id = id, priority = priority > 0 and priority or math.huge}
    end
  end
  priority_inserts.near(key, waiting_list(key), jobs, 0)
end

-- Jobs that were claimed but not started become what they were before.
local function put_back(key, base, unstarted, mine)
  undo_starts(key, base, unstarted, mine)
  return_jobs(key, base, unstarted, mine)
end

-- Settles outcomes of claimed jobs; see outcomes.py. Returns what work_once expects.
local function settle_jobs(key, arg, outcomes, now)
  local base = arg.base
  local jobs = outcome_columns(base, outcomes)
  local mine, lost, left = release_owned(key, base, outcomes, jobs.all, {})
  rest_groups(key, arg, outcomes, left, now)
  drop_missing(base, jobs.all, mine, lost)
  local completed, failed = 0, 0
  local all_completed = finished_set.by_rule(finished_of(base, key.completed, now))
  local all_failed = finished_set.by_rule(finished_of(base, key.failed, now))
  local function complete(i)
    local id = jobs.ids[i]
    free_debounce(base, id)
    finish_bull(arg, 'completed', all_completed, id, 'returnvalue', jobs.value or jobs.values[i], jobs.keeps[i])
  end

  for i, id in ipairs(jobs.ids) do
    if mine[id] and settle_alone(key, base, id, lost, complete, i) then
      completed = completed + 1
    end
  end
  all_completed.flush()
  for _, job in ipairs(outcomes.failed or {}) do
    if mine[job.id] and settle_alone(key, base, job.id, lost, save_attempt, base .. job.id, job) then
      free_debounce(base, job.id)
      finish_bull(arg, 'failed', all_failed, job.id, 'failedReason', job.reason, job.keep)
      failed = failed + 1
    end
  end
  all_failed.flush()
  retry_jobs(key, base, outcomes.retried or {}, mine, lost, left, now)
  forget_expiry(base, outcomes, mine)
  delay_jobs(key, outcomes.delayed or {}, mine, now)
  put_back(key, base, outcomes.unstarted or {}, mine)
  count_returns(base, outcomes.counted_returns or {}, mine)
  return_jobs(key, base, outcomes.returned or {}, mine)
  local limited_ms = limited_by(outcomes, mine)
  if limited_ms > 0 then
    -- Not in `limiter`: Node delays its jobs by the excess of that counter.
    redis.call('SET', key.rate_limited, '1', 'PX', limited_ms)
  end
  refill_groups(key, arg, now, left, waiting_again(outcomes, mine))
  count_finished(key, arg, completed, failed, now)
  return {mine = mine, lost = lost, may_drain = next(mine) ~= nil}
end
