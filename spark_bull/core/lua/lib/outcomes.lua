-- The outcomes of jobs that a worker settles.
-- @include lib: chunk(only_rows) damaged(lose_damaged) other_queues(args_at keys_at)
-- @include {dialect}/lib: add_jobs settle_jobs

-- The completed jobs of outcomes as lists {ids, keys, values, keeps}, with `value` instead of `values` if they all have
-- the same. `others`: the ids of jobs with another outcome; `all`: the ids of all jobs.
local function outcome_columns(base, outcomes)
  local ids, keys, others = outcomes.ids or {}, {}, {}
  for i = 1, #ids do
    keys[i] = base .. ids[i]
  end
  for _, group in ipairs({'failed', 'retried', 'delayed', 'rested'}) do
    for _, job in ipairs(outcomes[group] or {}) do
      others[#others + 1] = job.id
    end
  end
  for _, group in ipairs({'returned', 'unstarted', 'waiting_for_children'}) do
    for _, id in ipairs(outcomes[group] or {}) do
      others[#others + 1] = id
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

-- The settled jobs (of the set `mine`) that wait again.
local function waiting_again(outcomes, mine)
  local ids = {}
  for _, job in ipairs(outcomes.retried or {}) do
    ids[#ids + 1] = mine[job.id] and job.delay <= 0 and job.id or nil
  end
  for _, kind in ipairs({'returned', 'unstarted'}) do
    for _, id in ipairs(outcomes[kind] or {}) do
      ids[#ids + 1] = mine[id] and id or nil
    end
  end
  return ids
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

-- How long the jobs that are given back limit the queue, ms; 0 if all of these outcomes were rejected. `mine`: the
-- settled jobs.
local function limited_by(outcomes, mine)
  for _, id in ipairs(outcomes.returned or {}) do
    if mine[id] then
      return outcomes.limited_ms or 0
    end
  end
  return 0
end

-- Runs step(...), which settles one job and writes to its hash first. Returns whether it succeeded: a job whose key is
-- no longer a hash is set aside instead, and added to `lost`.
local function settle_alone(key, base, job_id, lost, step, ...)
  local done, why = pcall(step, ...)
  if done then
    return true
  end
  local kind = redis.call('TYPE', base .. job_id).ok
  if kind == 'hash' or kind == 'none' then
    error(why, 0)
  end
  lose_damaged(key, job_id, kind, lost)
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
