-- Jobs end, or return to the queue.
-- @include lib: events(is_written) groups(group_places) jobs(job_row lose_damaged)
-- @include lib: rescue(count_returns count_up expire_again release_owned)
-- @include lib: settle_jobs(count_finished drop_missing finished_set limit_queue new_settling outcome_columns)
-- @include lib: settle_jobs(refill_left_groups settle_alone)
-- @include lib: values(number_texts options_of priority_of set_of whole_number)
-- @include bullmq/lib: deduplication(free_and_requeue) events(emit emit_trimmed event_limit)
-- @include bullmq/lib: flows(allow_wrongtype family leave_parent unlink_job wait_for_children)
-- @include bullmq/lib: settle_jobs(finished_of rows_to_settle)
-- @include bullmq/lib: waiting(delay_job enqueue_job enqueue_near priority_score promote_due_jobs put_first)

local function finished_of(key, arg, state, now)
  return finished_set.new(state, now, function(job_id)
    local job_key = arg.base .. job_id
    local parent_key = redis.pcall('HGET', job_key, 'parentKey')
    if type(parent_key) == 'string' then
      allow_wrongtype(leave_parent, key, arg, job_key, parent_key, false)
    end
    unlink_job(job_key)
  end)
end

-- The number of fields of a new job (see claim_row), and those that its first claim by a worker with a name adds:
-- `processedOn`, `pb` and `ats`. A hash with at most this many fields cannot have any of the fields read below, so
-- HLEN alone tells.
local FIELDS_OF_STARTED_JOBS = 9

-- The fields atm, parentKey and deid of each of these jobs, true if it has none of them; false for one that is not
-- settled. Jobs that were deleted while they ran leave `mine`, those whose key is no longer a hash are set aside; both
-- are added to `lost`.
local function rows_to_settle(settling, jobs)
  local ids, keys, rows, mine = jobs.ids, jobs.keys, {}, settling.mine
  local count_of, is_named = redis.pcall, (settling.outcomes.worker or '') ~= ''
  for i = 1, #ids do
    local id = ids[i]
    if not mine[id] then
      rows[i] = false
    elseif is_named and count_of('HLEN', keys[i]) == FIELDS_OF_STARTED_JOBS then
      rows[i] = true
    else
      -- Each claim sets the last field: nearly all jobs that exist have it.
      local row, kind = job_row(keys[i], 'atm', 'parentKey', 'deid', 'processedOn')
      rows[i] = row or false
      if row and not row[4] and call('EXISTS', keys[i]) == 0 then
        rows[i], mine[id] = false, nil
        settling.lost[#settling.lost + 1] = {id, 'missing'}
      elseif not row then
        lose_damaged(settling.key, id, kind, settling.lost)
      end
    end
  end
  return rows
end

-- Why a job can't complete, or nil: a child is unfinished, or has failed.
local function barred_by_children(job_key)
  return call('EXISTS', job_key .. ':dependencies') == 1 and 'children'
    or call('EXISTS', job_key .. ':unsuccessful') == 1 and 'failed_children' or nil
end

-- The positions of completed jobs that have unfinished or failed children. Most jobs have no children: one call checks
-- all.
local function parents_in(jobs)
  local keys, count, found = {}, 0, {}
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
    if call('EXISTS', base .. id .. ':unsuccessful') == 1 then
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
local function complete_jobs(settling, rows, first, last)
  local key, arg, jobs, now = settling.key, settling.arg, settling.jobs, settling.now
  local text, count = number_texts(), 0
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
  settling.completed = settling.completed + count
end

-- Stores a failed attempt in the job's hash. Returns whether it could be written.
local function save_attempt(settling, job)
  return settle_alone(settling, job.id, call, 'HSET', settling.base .. job.id, 'failedReason', job.reason,
    'stacktrace', job.stack)
end

-- Fails the jobs at the positions first..last.
local function fail_jobs(settling, first, last)
  local key, arg, now = settling.key, settling.arg, settling.now
  local finished, finished_on = finished_of(key, arg, key.failed, now), string.format('%.0f', now)
  for i = first, last do
    local job = settling.outcomes.failed[i]
    if save_attempt(settling, job) then
      local job_key = settling.base .. job.id
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
      settling.failed = settling.failed + 1
      emit(key, arg, 'failed', 'jobId', job.id, 'failedReason', job.reason, 'prev', 'active')
      if made >= job.attempts then
        emit(key, arg, 'retries-exhausted', 'jobId', job.id, 'attemptsMade', made)
      end
    end
  end
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

-- Takes a parent from its worker, once its children that are settled by this call have ended; returns its row.
local function take_parent(settling, place)
  local one = {ids = {settling.jobs.ids[place]}, keys = {settling.jobs.keys[place]}}
  local barred = {[one.ids[1]] = barred_by_children(one.keys[1])}
  local mine, lost, left = release_owned(settling.key, settling.base, settling.outcomes, one.ids, barred)
  for id in pairs(mine) do
    settling.mine[id], settling.left[id] = true, left[id]
  end
  settling.lost[#settling.lost + 1] = lost[1]
  return rows_to_settle(settling, one)[1]
end

-- Completes and fails jobs. Jobs that ended before a parent are settled before it: the parent may be able to complete
-- then. `parents`: see parents_in.
local function finish_jobs(settling, parents)
  local jobs, failed, after = settling.jobs, settling.outcomes.failed, settling.outcomes.failed_after or {}
  local rows, next_completed, next_failed = rows_to_settle(settling, jobs), 1, 1

  local function finish_until(last)
    complete_jobs(settling, rows, next_completed, last)
    local last_failed = next_failed - 1
    while last_failed < #failed and (after[last_failed + 1] or 0) <= last do
      last_failed = last_failed + 1
    end
    if last_failed >= next_failed then
      fail_jobs(settling, next_failed, last_failed)
    end
    next_completed, next_failed = last + 1, last_failed + 1
  end

  for _, place in ipairs(parents) do
    finish_until(place - 1)
    rows[place] = take_parent(settling, place)
  end
  finish_until(#jobs.ids)
end

-- As in Node, up to 1,000 delayed jobs that are due are promoted before a job is retried at once.
local function retry_jobs(settling)
  local key, arg, is_promoted = settling.key, settling.arg, false
  for _, job in ipairs(settling.outcomes.retried) do
    if save_attempt(settling, job) then
      local job_key = settling.base .. job.id
      count_up(job_key, 'atm')
      if job.delay > 0 then
        call('HSET', job_key, 'delay', job.delay)
        delay_job(key, job.id, settling.now + job.delay)
      else
        if not is_promoted then
          promote_due_jobs(key, arg, settling.now, 1000)
          is_promoted = true
        end
        if not job.lifo and group_places.comes_near(key, settling.left, job.id) then
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

local function delay_jobs(settling)
  for _, job in ipairs(settling.outcomes.delayed) do
    local eta = math.max(job['until'], settling.now)
    local delay = string.format('%.0f', eta - settling.now)
    if settle_alone(settling, job.id, call, 'HSET', settling.base .. job.id, 'delay', delay) then
      delay_job(settling.key, job.id, eta)
    end
  end
end

-- Restores a job that was claimed but not started. A job that ran before keeps the time of that start.
local function undo_start(key, job_key, id)
  if call('HINCRBY', job_key, 'ats', -1) <= 0 then
    call('HDEL', job_key, 'ats', 'processedOn', 'pb')
    expire_again(key, job_key, id)
  end
end

-- Jobs that were claimed but not started become the next ones, in their old order.
local function put_back(settling)
  local key, arg, plain, groups = settling.key, settling.arg, {}, {}
  for _, id in ipairs(settling.outcomes.unstarted) do
    local job_key = settling.base .. id
    if settle_alone(settling, id, undo_start, key, job_key, id) then
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

-- Jobs that their processors give back go to the same places as in Node.
local function return_jobs(settling)
  local key, arg, returned = settling.key, settling.arg, settling.outcomes.returned
  for i = #returned, 1, -1 do
    local id = returned[i]
    if settling.mine[id] then
      local priority = priority_of(settling.base .. id)
      if priority > 0 then
        call('ZADD', key.prioritized, priority_score(priority, 0), id)
      else
        enqueue_job(key, arg.bullmq_version, id, 0, 'RPUSH')
      end
      emit_trimmed(key, arg, 'waiting', 'jobId', id, 'prev', 'active')
    end
  end
end

-- Whether some of the jobs have not ended.
local function goes_on(settling)
  for _, kind in ipairs({'retried', 'delayed', 'unstarted', 'returned', 'waiting_for_children'}) do
    for _, job in ipairs(settling.outcomes[kind]) do
      if settling.mine[type(job) == 'table' and job.id or job] then
        return true
      end
    end
  end
  return false
end

-- Settles outcomes of claimed jobs; see outcomes.py. Returns what work_once expects. As if the jobs were settled one by
-- one in this order, the queue can have drained only if the last one has ended.
local function settle_jobs(key, arg, outcomes, now)
  -- The jobs leave their worker; parents do so once the jobs before them have ended.
  local jobs = outcome_columns(arg.base, outcomes)
  local parents, barred = parents_in(jobs), barred_from_waiting(arg.base, outcomes.waiting_for_children)
  local ids = #parents == 0 and jobs.all or without(jobs.all, parents)
  local settling = new_settling(key, arg, outcomes, now, jobs, ids, barred)
  local mine, lost = settling.mine, settling.lost
  drop_missing(arg.base, jobs.others, mine, lost)
  if next(mine) then
    call('XTRIM', key.events, 'MAXLEN', '~', event_limit(key))
  end
  -- They end, or come to another state.
  finish_jobs(settling, parents)
  if #jobs.others > 0 then
    retry_jobs(settling)
    delay_jobs(settling)
    put_back(settling)
    count_returns(arg.base, outcomes.counted_returns or {}, mine)
    for _, id in ipairs(wait_for_children(key, arg, outcomes.waiting_for_children, mine, now)) do
      table.insert(outcomes.returned, id)
    end
    return_jobs(settling)
    local limited_ms = limit_queue(settling)
    if limited_ms then
      -- For Node workers with a limiter.
      call('SET', key.limiter, '9007199254740991', 'PX', limited_ms)
    end
  end
  refill_left_groups(settling)
  count_finished(key, arg, settling.completed, settling.failed, now)
  return {mine = mine, lost = lost, may_drain = settling.completed + settling.failed > 0 and not goes_on(settling)}
end
