-- Jobs end, or return to the queue.
-- @include lib: add_jobs(only_rows) group_limits(refill_groups rest_groups) jobs(args_at keys_at lose_damaged)
-- @include lib: rescue(release_owned) values(finite_number is_true)
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
  if not next(settling.left) then
    return
  end
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
      call('SET', settling.key.rate_limited, '1', 'PX', limited_ms)
      return limited_ms
    end
  end
end

-- Removes jobs that were deleted while they ran from the set `mine`, and adds them to `lost`: writing an outcome would
-- create a hash with nothing else.
local function drop_missing(base, ids, mine, lost)
  local present, keys = {}, {}
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
  local kind = call('TYPE', settling.base .. job_id).ok
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

-- The states of finished jobs.

-- Maximum number of jobs that one script removes because of a keep rule.
local MAX_REMOVED = 1000

-- The changes of one script to `state`, a ZSET of finished jobs. `remove(id)` deletes the keys of a job. All jobs that
-- a script adds have the same score, and Redis sorts those by the text of their ids: `fresh` keeps them in the order in
-- which they ended. Few rules need that: `added` are the arguments of ZADD that are not in `fresh` yet.
local function finished_jobs(state, now, remove)
  return {
    state = state,
    now = now,
    remove = remove,
    added = {},
    fresh = {},
    first = 1,
    is_fresh = {},
    may_go = MAX_REMOVED,
  }
end

local function note_fresh(finished)
  for _, scored in ipairs(finished.added) do
    for i = 2, #scored, 2 do
      finished.fresh[#finished.fresh + 1], finished.is_fresh[scored[i]] = scored[i], true
    end
  end
  finished.added = {}
end

-- Replaces the fresh jobs among `ids`, which will be removed, by those fresh ones that ended first.
local function oldest_first(finished, ids)
  note_fresh(finished)
  local fresh, is_fresh = finished.fresh, finished.is_fresh
  for i, id in ipairs(ids) do
    if is_fresh[id] then
      while not is_fresh[fresh[finished.first]] do
        finished.first = finished.first + 1
      end
      ids[i] = fresh[finished.first]
      finished.first = finished.first + 1
    end
  end
end

local function drop_finished(finished, ids)
  if #ids == 0 then
    return
  end
  note_fresh(finished)
  for _, id in ipairs(ids) do
    finished.remove(id)
    finished.is_fresh[id] = nil
  end
  call('ZREM', finished.state, unpack(ids))
  finished.may_go = finished.may_go - #ids
end

-- Removes the oldest jobs until `coming` others can be added.
local function make_room(finished, keep, coming)
  local state = finished.state
  local over = keep.count and keep.count > 0 and call('ZCARD', state) + coming - keep.count or 0
  over = math.min(over, finished.may_go)
  if over > 0 then
    local ids = call('ZRANGE', state, 0, over - 1)
    oldest_first(finished, ids)
    drop_finished(finished, ids)
  end
end

-- Removes jobs that are older than `keep.age`.
local function drop_old(finished, keep)
  if keep.age then
    local most = math.min(keep.limit or MAX_REMOVED, finished.may_go)
    drop_finished(finished,
      call('ZREVRANGEBYSCORE', finished.state, finished.now - keep.age * 1000, '-inf', 'LIMIT', 0, most))
  end
end

-- Removes the jobs that `keep` does not allow, the oldest first: {count, age (s), limit}.
local function apply_rule(finished, keep)
  drop_old(finished, keep)
  make_room(finished, keep, 0)
end

-- Adds jobs of one rule in the order in which they ended, with the effect of adding them one by one, and removes the
-- jobs that `keep` (see apply_rule) does not allow.
local function add_finished(finished, ids, keep)
  local surplus = keep.count and keep.count > 0 and math.max(0, #ids - keep.count) or 0
  for i = 1, surplus do
    finished.remove(ids[i])
  end
  make_room(finished, keep, #ids - surplus)
  local scored, count, finished_on = {}, 0, string.format('%.0f', finished.now)
  for i = surplus + 1, #ids do
    scored[count + 1], scored[count + 2] = finished_on, ids[i]
    count = count + 2
  end
  call('ZADD', finished.state, unpack(scored))
  finished.added[#finished.added + 1] = scored
  drop_old(finished, keep)
end

local NO_RULE = {}

-- Adds jobs as add_finished does, in one call while their rule is the same: {add(id, keep), flush(), state,
-- finished_on = the time as a text}.
local function finished_by_rule(finished)
  local ids, count, rule = {}, 0, NO_RULE
  local groups = {state = finished.state, finished_on = string.format('%.0f', finished.now)}

  function groups.flush()
    if count > 0 then
      add_finished(finished, ids, rule)
      ids, count = {}, 0
    end
  end

  function groups.add(id, keep)
    keep = keep and next(keep) and keep or NO_RULE
    if keep ~= rule then
      groups.flush()
      rule = keep
    end
    count = count + 1
    ids[count] = id
  end

  return groups
end

local finished_set = {
  new = finished_jobs,
  apply_rule = apply_rule,
  add = add_finished,
  NO_RULE = NO_RULE,
  by_rule = finished_by_rule,
}

-- The states `completed` and `failed`: the type of their keys, the command that removes a member, and whether they have a
-- job.
local finished_state = {
  kind = 'zset',
  take = 'ZREM',
  has = function(state, id)
    return call('ZSCORE', state, id)
  end,
}

-- Counts finished jobs: `count` in the HASH is the total, the LIST has a number for each of the last `most` minutes,
-- the newest first.
local function count_metrics(meta, data, finished, most, now)
  local before = call('HINCRBY', meta, 'count', finished) - finished
  local previous = call('HMGET', meta, 'prevTS', 'prevCount')
  if not previous[1] then
    call('HSET', meta, 'prevTS', now, 'prevCount', 0)
    return
  end
  local minutes = math.min(math.floor(now / 60000) - math.floor(previous[1] / 60000), most)
  if minutes <= 0 then
    return
  end
  local points = {before - previous[2]}
  for i = 2, minutes do
    points[i] = 0
  end
  for from = 1, #points, 5000 do
    call('LPUSH', data, unpack(points, from, math.min(from + 4999, #points)))
  end
  call('LTRIM', data, 0, most - 1)
  call('HSET', meta, 'prevCount', before, 'prevTS', now)
end

-- Counts the jobs that one call has finished, unless the worker keeps no metrics. Keys of another type count nothing: the
-- jobs are settled.
local function count_finished(key, arg, completed, failed, now)
  local most = tonumber(arg.max_metrics)
  if most > 0 and completed > 0 then
    pcall(count_metrics, key.metrics_completed, key.metrics_completed_data, completed, most, now)
  end
  if most > 0 and failed > 0 then
    pcall(count_metrics, key.metrics_failed, key.metrics_failed_data, failed, most, now)
  end
end

-- How many finished jobs a job's option `name`, removeOnComplete or removeOnFail, lets the queue keep: {count, age (s),
-- limit}; nil: all.
local function keep_rule(opts, name)
  local rule = opts[name]
  if type(rule) == 'number' then
    return rule >= 0 and {count = math.ceil(rule)} or nil
  end
  if type(rule) ~= 'table' then
    return is_true(rule) and {count = 0} or nil
  end
  local kept = {}
  for _, name in ipairs({'count', 'age', 'limit'}) do
    local number = finite_number(rule[name])
    if number and number >= 0 then
      kept[name] = math.floor(number)
    end
  end
  return kept
end
