-- Jobs end, or return to the queue.
-- @include lib: groups(group_places) rescue(count_returns count_up expire_again)
-- @include lib: settle_jobs(count_finished drop_missing finished_set limit_queue new_settling outcome_columns)
-- @include lib: settle_jobs(refill_left_groups settle_alone) values(priority_of time_ms) waiting(JOBS_BEFORE)
-- @include bull/lib: add_jobs(free_debounce) events(json_text publish) rescue(forget_expiry)
-- @include bull/lib: settle_jobs(finished_of) waiting(delay_jobs priority_inserts waiting_list)
-- @include {dialect}/lib: rescue(STARTED_FIELD) waiting(delay_job)

local function finished_of(base, state, now)
  return finished_set.new(state, now, function(job_id)
    call('UNLINK', base .. job_id, base .. job_id .. ':logs')
  end)
end

-- Stores a failed attempt in the job's hash.
local function save_attempt(job_key, job)
  call('HSET', job_key, 'stacktrace', job.stack, 'failedReason', job.reason)
  count_up(job_key, 'attemptsMade')
end

-- Deletes the field that a claim has set from jobs without an attempt or a stall before: Bull does not count starts.
-- The counter of stalls is 1,000,000 at first if the job may run at most once.
local function undo_starts(settling)
  local base = settling.base
  for _, id in ipairs(settling.outcomes.unstarted) do
    if settling.mine[id] then
      local row = redis.pcall('HMGET', base .. id, 'attemptsMade', 'stalledCounter')
      if not row.err and (tonumber(row[1]) or 0) == 0 and (tonumber(row[2]) or 0) % 1000000 == 0 then
        call('HDEL', base .. id, STARTED_FIELD)
        expire_again(settling.key, base .. id, id)
      end
    end
  end
end

-- Settles outcomes of claimed jobs; see outcomes.py. Returns what the steps share, see new_settling. `steps`: those that
-- differ between versions of Bull, {complete, fail, retry, give_back}.
local function settle_in_order(key, arg, outcomes, now, steps)
  -- The jobs leave their worker.
  local jobs = outcome_columns(arg.base, outcomes)
  local settling = new_settling(key, arg, outcomes, now, jobs, jobs.all, {})
  drop_missing(arg.base, jobs.all, settling.mine, settling.lost)
  -- They end, or come to another state.
  steps.complete(settling)
  steps.fail(settling)
  steps.retry(settling)
  forget_expiry(settling)
  delay_jobs(settling)
  undo_starts(settling)
  steps.give_back(settling, outcomes.unstarted)
  count_returns(arg.base, outcomes.counted_returns or {}, settling.mine)
  steps.give_back(settling, outcomes.returned)
  -- Not in `limiter`: Node delays its jobs by the excess of that counter.
  limit_queue(settling)
  refill_left_groups(settling)
  return settling
end

-- Moves a job to its finished state by its keep rule, and publishes `event`. `finished`: see finished_set.by_rule;
-- `field`: returnvalue or failedReason; `text`: its value.
local function finish_bull(arg, event, finished, job_id, field, text, keep)
  local job_key = arg.base .. job_id
  if keep and keep.count == 0 then
    call('UNLINK', job_key, job_key .. ':logs')
  else
    call('HSET', job_key, field, text, 'finishedOn', finished.finished_on)
    finished.add(job_id, keep)
  end
  publish(arg, event, finished.state, '{"jobId":' .. json_text(job_id) .. ',"val":' .. json_text(text) .. '}')
end

local function complete_jobs(settling)
  local base, jobs = settling.base, settling.jobs
  local finished = finished_set.by_rule(finished_of(base, settling.key.completed, settling.now))

  local function complete(i, id)
    free_debounce(base, id)
    finish_bull(settling.arg, 'completed', finished, id, 'returnvalue', jobs.value or jobs.values[i], jobs.keeps[i])
  end

  for i, id in ipairs(jobs.ids) do
    if settle_alone(settling, id, complete, i, id) then
      settling.completed = settling.completed + 1
    end
  end
  finished.flush()
end

local function fail_jobs(settling)
  local base = settling.base
  local finished = finished_set.by_rule(finished_of(base, settling.key.failed, settling.now))
  for _, job in ipairs(settling.outcomes.failed) do
    if settle_alone(settling, job.id, save_attempt, base .. job.id, job) then
      free_debounce(base, job.id)
      finish_bull(settling.arg, 'failed', finished, job.id, 'failedReason', job.reason, job.keep)
      settling.failed = settling.failed + 1
    end
  end
  finished.flush()
end

local function retry_jobs(settling)
  local key, base = settling.key, settling.base
  local target, prioritized, near = waiting_list(key), {}, {}
  for _, job in ipairs(settling.outcomes.retried) do
    if settle_alone(settling, job.id, save_attempt, base .. job.id, job) then
      local priority = priority_of(base .. job.id)
      if job.delay > 0 then
        delay_job(key, job.id, settling.now + job.delay)
      elseif group_places.comes_near(key, settling.left, job.id) and not job.lifo then
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
local function return_jobs(settling, returned)
  local jobs = {}
  for _, id in ipairs(returned) do
    if settling.mine[id] then
      local priority = priority_of(settling.base .. id)
      jobs[#jobs + 1] = {id = id, priority = priority > 0 and priority or math.huge}
    end
  end
  priority_inserts.near(settling.key, waiting_list(settling.key), jobs, 0)
end

-- Returns what work_once expects.
local function settle_jobs(key, arg, outcomes, now)
  local steps = {complete = complete_jobs, fail = fail_jobs, retry = retry_jobs, give_back = return_jobs}
  local settling = settle_in_order(key, arg, outcomes, now, steps)
  count_finished(key, arg, settling.completed, settling.failed, now)
  return {mine = settling.mine, lost = settling.lost, may_drain = next(settling.mine) ~= nil}
end

-- Clears the outcome of a job that is retried.
local function clear_outcome(job_key)
  call('HDEL', job_key, 'finishedOn', 'processedOn', 'failedReason')
  call('HSET', job_key, 'retriedOn', time_ms())
end
