-- The outcomes of jobs that a worker settles.
-- @include lib: chunk(only_rows) damaged(lose_damaged) group_room(refill_groups rest_groups)
-- @include lib: other_queues(args_at keys_at) release_owned
-- @include {dialect}/lib: add_jobs settle_jobs

local KINDS = {'failed', 'retried', 'delayed', 'rested', 'returned', 'unstarted', 'waiting_for_children'}

-- The completed jobs of outcomes as lists {ids, keys, values, keeps}, with `value` instead of `values` if they all have
-- the same. `others`: the ids of jobs with another outcome; `all`: the ids of all jobs. Each kind of outcomes has a list
-- then.
local function outcome_columns(base, outcomes)
  local ids, keys, others = outcomes.ids or {}, {}, {}
  for i = 1, #ids do
    keys[i] = base .. ids[i]
  end
  for _, kind in ipairs(KINDS) do
    outcomes[kind] = outcomes[kind] or {}
    for _, job in ipairs(outcomes[kind]) do
      others[#others + 1] = type(job) == 'table' and job.id or job
    end
  end
  local jobs = {
    ids = ids,
    keys = keys,
    others = others,
    all = {unpack(ids)},
    keeps = outcomes.keeps or {},
  }
  for _, id in ipairs(others) do
    jobs.all[#jobs.all + 1] = id
  end
  if type(outcomes.values) == 'table' then
    jobs.values = outcomes.values
  else
    jobs.value = outcomes.values
  end
  if outcomes.keep then
    for i = 1, #ids do
      jobs.keeps[i] = outcomes.keep
    end
  end
  return jobs
end

-- Takes jobs from their worker; `ids` and `barred`: see release_owned. Returns what the steps share that settle them:
-- `mine`, the set of the jobs that are settled, `lost`, {id, reason} of the others, `left`, the groups that jobs have
-- left, job id -> group, and the number of jobs that have completed and failed. `jobs`: see outcome_columns.
local function new_settling(key, arg, outcomes, now, jobs, ids, barred)
  local mine, lost, left = release_owned(key, arg.base, outcomes, ids, barred)
  rest_groups(key, arg, outcomes, left, now)
  return {
    key = key,
    arg = arg,
    base = arg.base,
    now = now,
    outcomes = outcomes,
    jobs = jobs,
    mine = mine,
    lost = lost,
    left = left,
    completed = 0,
    failed = 0,
  }
end

-- Refills the groups that jobs have left; some of these jobs wait again.
local function refill_left_groups(settling)
  local ids, mine = {}, settling.mine
  for _, job in ipairs(settling.outcomes.retried) do
    ids[#ids + 1] = mine[job.id] and job.delay <= 0 and job.id or nil
  end
  for _, kind in ipairs({'returned', 'unstarted'}) do
    for _, id in ipairs(settling.outcomes[kind]) do
      ids[#ids + 1] = mine[id] and id or nil
    end
  end
  refill_groups(settling.key, settling.arg, settling.now, settling.left, ids)
end

-- Limits the queue for all workers of Spark if a settled job was given back for that. Returns for how long, ms, else nil.
local function limit_queue(settling)
  local limited_ms = settling.outcomes.limited_ms or 0
  for _, id in ipairs(limited_ms > 0 and settling.outcomes.returned or {}) do
    if settling.mine[id] then
      redis.call('SET', settling.key.rate_limited, '1', 'PX', limited_ms)
      return limited_ms
    end
  end
end

-- Removes jobs that were deleted while they ran from the set `mine`, and adds them to `lost`: writing an outcome would
-- create a hash with nothing else.
local function drop_missing(base, ids, mine, lost)
  local call, present, keys = redis.call, {}, {}
  for i = 1, #ids do
    if mine[ids[i]] then
      present[#present + 1], keys[#keys + 1] = ids[i], base .. ids[i]
    end
  end
  if #keys == 0 or call('EXISTS', unpack(keys)) == #keys then
    return
  end
  for i = 1, #keys do
    if call('EXISTS', keys[i]) == 0 then
      mine[present[i]] = nil
      lost[#lost + 1] = {present[i], 'missing'}
    end
  end
end

-- Runs step(...), which settles one job and writes to its hash first. Returns whether the job is one of `mine`, and the
-- step succeeded: a job whose key is no longer a hash is set aside instead, and added to `lost`.
local function settle_alone(settling, job_id, step, ...)
  if not settling.mine[job_id] then
    return false
  end
  local done, why = pcall(step, ...)
  if done then
    return true
  end
  local kind = redis.call('TYPE', settling.base .. job_id).ok
  if kind == 'hash' or kind == 'none' then
    error(why, 0)
  end
  lose_damaged(settling.key, job_id, kind, settling.lost)
  return false
end

-- Adds the follow-ups of outcomes, but not of rejected ones. `follow_ups`: a list of {base, queue, of, jobs}: a
-- chunk of jobs for one queue, and the id of the settled job that each belongs to. `settled`: the result of
-- settle_jobs.
local function add_follow_ups(key, arg, follow_ups, settled, now)
  local is_lost = {}
  for _, one in ipairs(settled.lost) do
    is_lost[one[1]] = true
  end
  for _, group in ipairs(follow_ups) do
    local rows = {}
    for row, id in ipairs(group.of) do
      if settled.mine[id] and not is_lost[id] then
        rows[#rows + 1] = row
      end
    end
    local chunk = only_rows(group.jobs, rows)
    chunk.whole = true
    if chunk.n > 0 then
      add_jobs(keys_at(key, arg, group.base), args_at(arg, group.base, group.queue), chunk, 1, now)
    end
  end
end

-- Settles jobs as `settle_jobs` does, and adds their follow-ups.
local function settle_and_add(key, arg, outcomes, now)
  local settled = settle_jobs(key, arg, outcomes, now)
  add_follow_ups(key, arg, outcomes.follow_ups, settled, now)
  return settled
end
