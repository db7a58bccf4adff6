-- @include lib: events(is_written) expiry(expire_again) finished(count_finished finished_set)
-- @include lib: group_queue(group_places) group_room(refill_groups rest_groups) json(options_of)
-- @include lib: numbers(number_texts priority_of set_of whole_number)
-- @include lib: outcomes(drop_missing limited_by outcome_columns settle_alone waiting_again) release_owned
-- @include lib: stalls(count_returns count_up)
-- @include bullmq/lib: deduplication(free_and_requeue) delayed(delay_job) events(emit emit_trimmed event_limit)
-- @include bullmq/lib: finished(finished_of) outcomes(rows_to_settle)
-- @include bullmq/lib: parents(allow_wrongtype family leave_parent unlink_job wait_for_children)
-- @include bullmq/lib: promote(promote_due_jobs) waiting(enqueue_job enqueue_near priority_score put_first)

-- Why a job can't complete, or nil: a child is unfinished, or has failed.
local function barred_by_children(job_key)
  local call = redis.call
  return call('EXISTS', job_key .. ':dependencies') == 1 and 'children'
    or call('EXISTS', job_key .. ':unsuccessful') == 1 and 'failed_children' or nil
end

-- The positions of completed jobs that have unfinished or failed children. Most jobs have no children: one call checks
-- all.
local function parents_in(jobs)
  local call, keys, count, found = redis.call, {}, 0, {}
  for _, job_key in ipairs(jobs.keys) do
    keys[count + 1], keys[count + 2] = job_key .. ':dependencies', job_key .. ':unsuccessful'
    count = count + 2
  end
  if count > 0 and call('EXISTS', unpack(keys)) > 0 then
    for i = 1, #jobs.ids do
      if barred_by_children(jobs.keys[i]) then
        found[#found + 1] = i
      end
    end
  end
  return found
end

-- The jobs of `waiting` that can't wait for their children, id -> reason: a child has failed.
local function barred_from_waiting(base, waiting)
  local barred = {}
  for _, id in ipairs(waiting) do
    if redis.call('EXISTS', base .. id .. ':unsuccessful') == 1 then
      barred[id] = 'failed_children'
    end
  end
  return barred
end

local function remove_finished(key, arg, job_key, parent_key)
  unlink_job(job_key)
  if parent_key then
    allow_wrongtype(leave_parent, key, arg, job_key, parent_key, false)
  end
end

-- Completes the jobs at the positions first..last. The parent is read again, as a job can get it while it is active.
-- `rows`: see rows_to_settle.
local function complete_jobs(key, arg, jobs, rows, first, last, now)
  local call, text, count = redis.call, number_texts(), 0
  local ids, keys, value, values, keeps = jobs.ids, jobs.keys, jobs.value, jobs.values, jobs.keeps
  local events, is_told = key.events, is_written(arg, 'completed')
  local finished = finished_set.by_rule(finished_of(key, arg, key.completed, now))
  local finished_on = finished.finished_on
  for i = first, last do
    local row = rows[i]
    if row then
      local id, job_key, keep, made, parent_key = ids[i], keys[i], keeps[i], '1', nil
      if values then
        value = values[i]
      end
      if row ~= true then
        made, parent_key = row[1] and text[whole_number(row[1]) + 1] or '1', row[2]
        if row[3] then
          allow_wrongtype(free_and_requeue, key, arg, id, row[3], now)
        end
        if parent_key then
          allow_wrongtype(family.child_completed, key, arg, job_key, parent_key, value, now)
        end
      end
      if keep and keep.count == 0 then
        remove_finished(key, arg, job_key, parent_key)
      else
        call('HSET', job_key, 'atm', made, 'returnvalue', value, 'finishedOn', finished_on)
        finished.add(id, keep)
      end
      count = count + 1
      if is_told then
        call('XADD', events, '*', 'event', 'completed', 'jobId', id, 'returnvalue', value, 'prev', 'active')
      end
    end
  end
  finished.flush()
  return count
end

-- Stores a failed attempt in the job's hash. Returns whether it could be written.
local function save_attempt(key, base, job, lost)
  return settle_alone(key, base, job.id, lost, redis.call, 'HSET', base .. job.id, 'failedReason', job.reason,
    'stacktrace', job.stack)
end

-- Fails the jobs at the positions first..last.
local function fail_jobs(key, arg, failed, mine, lost, first, last, now)
  local call, base, finished_on = redis.call, arg.base, string.format('%.0f', now)
  local finished, count = finished_of(key, arg, key.failed, now), 0
  for i = first, last do
    local job = failed[i]
    if mine[job.id] and save_attempt(key, base, job, lost) then
      local job_key = base .. job.id
      local fields = call('HMGET', job_key, 'parentKey', 'parent', 'deid')
      if fields[3] then
        allow_wrongtype(free_and_requeue, key, arg, job.id, fields[3], now)
      end
      if fields[1] then
        allow_wrongtype(family.child_failed, key, arg, job_key, fields[1], options_of(fields[2]), job.reason, now)
      end
      local made = count_up(job_key, 'atm')
      if job.keep and job.keep.count == 0 then
        remove_finished(key, arg, job_key, fields[1])
      else
        call('HSET', job_key, 'finishedOn', finished_on)
        call('HDEL', job_key, 'defa')
        finished_set.add(finished, {job.id}, job.keep or finished_set.NO_RULE)
      end
      count = count + 1
      emit(key, arg, 'failed', 'jobId', job.id, 'failedReason', job.reason, 'prev', 'active')
      if made >= job.attempts then
        emit(key, arg, 'retries-exhausted', 'jobId', job.id, 'attemptsMade', made)
      end
    end
  end
  return count
end

local function without(ids, places)
  local left_out, rest = set_of(places), {}
  for i = 1, #ids do
    if not left_out[i] then
      rest[#rest + 1] = ids[i]
    end
  end
  return rest
end

local function merge(into, others)
  for name, value in pairs(others) do
    into[name] = value
  end
end

-- Completes and fails jobs. Jobs that ended before a parent are settled before it: the parent may be able to complete
-- then. `parents`: see parents_in. `mine`, `lost` and `left` have the other jobs; the parents are added. Returns how
-- many jobs have completed, and how many have failed.
local function finish_jobs(key, arg, outcomes, jobs, parents, rows, mine, lost, left, now)
  local failed, after = outcomes.failed or {}, outcomes.failed_after or {}
  local next_completed, next_failed, completed, failures = 1, 1, 0, 0

  local function finish_until(last)
    completed = completed + complete_jobs(key, arg, jobs, rows, next_completed, last, now)
    local last_failed = next_failed - 1
    while last_failed < #failed and (after[last_failed + 1] or 0) <= last do
      last_failed = last_failed + 1
    end
    failures = failures + fail_jobs(key, arg, failed, mine, lost, next_failed, last_failed, now)
    next_completed, next_failed = last + 1, last_failed + 1
  end

  for _, place in ipairs(parents) do
    finish_until(place - 1)
    local one = {ids = {jobs.ids[place]}, keys = {jobs.keys[place]}}
    local barred = {[one.ids[1]] = barred_by_children(one.keys[1])}
    local its_mine, its_lost, its_left = release_owned(key, arg.base, outcomes, one.ids, barred)
    rows[place] = rows_to_settle(key, outcomes.worker, one, its_mine, its_lost)[1]
    merge(mine, its_mine)
    merge(left, its_left)
    for _, reason in ipairs(its_lost) do
      lost[#lost + 1] = reason
    end
  end
  finish_until(#jobs.ids)
  return completed, failures
end

-- As in Node, up to 1,000 delayed jobs that are due are promoted before a job is retried at once.
local function retry_jobs(key, arg, retried, mine, lost, left, now)
  local call, is_promoted = redis.call, false
  for _, job in ipairs(retried) do
    if mine[job.id] and save_attempt(key, arg.base, job, lost) then
      local job_key = arg.base .. job.id
      count_up(job_key, 'atm')
      if job.delay > 0 then
        call('HSET', job_key, 'delay', job.delay)
        delay_job(key, job.id, now + job.delay)
      else
        if not is_promoted then
          promote_due_jobs(key, arg, now, 1000)
          is_promoted = true
        end
        if not job.lifo and group_places.comes_near(key, left, job.id) then
          enqueue_near(key, arg, {job.id})
        else
          local priority = priority_of(job_key)
          enqueue_job(key, arg.bullmq_version, job.id, priority, job.lifo and 'RPUSH' or 'LPUSH')
        end
        emit_trimmed(key, arg, 'waiting', 'jobId', job.id, 'prev', 'active')
      end
    end
  end
end

local function delay_jobs(key, arg, delayed, mine, lost, now)
  for _, job in ipairs(delayed) do
    local eta = math.max(job['until'], now)
    if mine[job.id] and settle_alone(key, arg.base, job.id, lost, redis.call, 'HSET', arg.base .. job.id, 'delay',
      string.format('%.0f', eta - now)) then
      delay_job(key, job.id, eta)
    end
  end
end

-- Jobs that their processors give back go to the same places as in Node.
local function return_jobs(key, arg, returned, mine)
  local call = redis.call
  for i = #returned, 1, -1 do
    local id = returned[i]
    if mine[id] then
      local priority = priority_of(arg.base .. id)
      if priority > 0 then
        call('ZADD', key.prioritized, priority_score(priority, 0), id)
      else
        enqueue_job(key, arg.bullmq_version, id, 0, 'RPUSH')
      end
      emit_trimmed(key, arg, 'waiting', 'jobId', id, 'prev', 'active')
    end
  end
end

-- Restores a job that was claimed but not started. A job that ran before keeps the time of that start.
local function undo_start(key, job_key, id)
  if redis.call('HINCRBY', job_key, 'ats', -1) <= 0 then
    redis.call('HDEL', job_key, 'ats', 'processedOn', 'pb')
    expire_again(key, job_key, id)
  end
end

-- Jobs that were claimed but not started become the next ones, in their old order.
local function put_back(key, arg, unstarted, mine, lost)
  local plain, groups = {}, {}
  for _, id in ipairs(unstarted) do
    local job_key = arg.base .. id
    if mine[id] and settle_alone(key, arg.base, id, lost, undo_start, key, job_key, id) then
      local priority = priority_of(job_key)
      local group = priority > 0 and (groups[priority] or {}) or plain
      group[#group + 1] = id
      if priority > 0 then
        groups[priority] = group
      end
      emit_trimmed(key, arg, 'waiting', 'jobId', id, 'prev', 'active')
    end
  end
  for priority, ids in pairs(groups) do
    put_first(key, priority, ids)
  end
  for i = #plain, 1, -1 do
    enqueue_job(key, arg.bullmq_version, plain[i], 0, 'RPUSH')
  end
end

-- Whether some of the jobs have not ended.
local function goes_on(outcomes, mine)
  for _, kind in ipairs({'retried', 'delayed', 'unstarted', 'returned', 'waiting_for_children'}) do
    for _, job in ipairs(outcomes[kind] or {}) do
      if mine[type(job) == 'table' and job.id or job] then
        return true
      end
    end
  end
  return false
end

-- Settles outcomes of claimed jobs; see outcomes.py. Returns what work_once expects. As if the jobs were settled one by
-- one in this order, the queue can have drained only if the last one has ended.
local function settle_jobs(key, arg, outcomes, now)
  local jobs, waiting = outcome_columns(arg.base, outcomes), outcomes.waiting_for_children or {}
  local parents, barred = parents_in(jobs), barred_from_waiting(arg.base, waiting)
  local others = #parents == 0 and jobs.all or without(jobs.all, parents)
  local mine, lost, left = release_owned(key, arg.base, outcomes, others, barred)
  rest_groups(key, arg, outcomes, left, now)
  local rows = rows_to_settle(key, outcomes.worker, jobs, mine, lost)
  drop_missing(arg.base, jobs.others, mine, lost)
  if next(mine) then
    redis.call('XTRIM', key.events, 'MAXLEN', '~', event_limit(key))
  end
  local completed, failed = finish_jobs(key, arg, outcomes, jobs, parents, rows, mine, lost, left, now)
  retry_jobs(key, arg, outcomes.retried or {}, mine, lost, left, now)
  delay_jobs(key, arg, outcomes.delayed or {}, mine, lost, now)
  put_back(key, arg, outcomes.unstarted or {}, mine, lost)
  outcomes.returned = outcomes.returned or {}
  count_returns(arg.base, outcomes.counted_returns or {}, mine)
  for _, id in ipairs(wait_for_children(key, arg, waiting, mine, now)) do
    table.insert(outcomes.returned, id)
  end
  return_jobs(key, arg, outcomes.returned, mine)
  local limited_ms = limited_by(outcomes, mine)
  if limited_ms > 0 then
    -- The first key is for Node workers with a limiter, the second one for all workers of Spark.
    redis.call('SET', key.limiter, '9007199254740991', 'PX', limited_ms)
    redis.call('SET', key.rate_limited, '1', 'PX', limited_ms)
  end
  refill_groups(key, arg, now, left, waiting_again(outcomes, mine))
  count_finished(key, arg, completed, failed, now)
  return {mine = mine, lost = lost, may_drain = completed + failed > 0 and not goes_on(outcomes, mine)}
end
