-- Flows: jobs with children.
-- @include lib: add_jobs(listed only_rows) jobs(args_at keys_at) values(whole_number)
-- @include bullmq/lib: add_jobs(add_jobs chunk_parents) deduplication(free_deduplication) events(emit event_limit)
-- @include bullmq/lib: flows(parent_of release_parent) waiting(delay_job enqueue_job)

-- Runs step(...), which writes to keys that a job shares with others. A key of a wrong type ends the step, but not the
-- script.
local function allow_wrongtype(step, ...)
  local done, why = pcall(step, ...)
  local message = type(why) == 'table' and why.err or why
  if not done and not string.find(message, 'WRONGTYPE', 1, true) then
    error(why, 0)
  end
end

-- The part of the keys of relays between the base of their queue and the id; relays are a queue of private keys.
local RELAYS = 'spark:relay:'

-- Parents and children refer to each other by the keys of their hashes, in any queue.
-- Returns the base of the queue's keys, and the job's id. The name of a queue has no ':', an id can have some.
local function split_job_key(arg, job_key)
  local prefix = string.sub(arg.base, 1, -#arg.queue - 2)
  if string.sub(job_key, 1, #prefix) == prefix then
    local queue, job_id = string.match(job_key, '^([^:]*:)(.*)$', #prefix + 1)
    if queue and string.sub(job_id, 1, #RELAYS) == RELAYS then
      return prefix .. queue .. RELAYS, string.sub(job_id, #RELAYS + 1)
    elseif queue then
      return prefix .. queue, job_id
    end
  end
  return string.match(job_key, '^(.*:)(.*)$')
end

-- Returns the keys of the parent's queue, and its id.
local function parent_of(key, arg, parent_key)
  local base, parent_id = split_job_key(arg, parent_key)
  return keys_at(key, arg, base), parent_id
end

-- Deletes the keys of a job. Returns how many of them existed.
local function unlink_job(job_key)
  return call('UNLINK', job_key, job_key .. ':lock', job_key .. ':logs', job_key .. ':dependencies',
    job_key .. ':processed', job_key .. ':failed', job_key .. ':unsuccessful')
end

-- Moves a parent from `state` to the waiting or, if it has a delay, the delayed jobs. `push`: RPUSH (nil) makes it the
-- next one of its list, LPUSH the last one. Returns whether it was in `state`.
local function release_parent(keys, arg, parent_key, parent_id, state, now, push)
  if call('ZREM', state, parent_id) == 0 then
    return false
  end
  local fields = call('HMGET', parent_key, 'priority', 'delay')
  local delay = whole_number(fields[2])
  if delay > 0 then
    delay_job(keys, parent_id, now + delay)
  else
    enqueue_job(keys, arg.bullmq_version, parent_id, whole_number(fields[1]), push or 'RPUSH')
    emit(keys, arg, 'waiting', 'jobId', parent_id, 'prev', 'waiting-children')
  end
  return true
end

-- Of the given waiting parents, moves each that has no unfinished child to the waiting or, if it has a delay,
-- the delayed jobs, in their order.
local function release_jobs(key, arg, ids, now)
  for _, id in ipairs(ids) do
    local job_key = arg.base .. id
    if call('SCARD', job_key .. ':dependencies') == 0 then
      release_parent(key, arg, job_key, id, key.waiting_children, now, 'LPUSH')
    end
  end
  call('XTRIM', key.events, 'MAXLEN', '~', event_limit(key))
end

-- Removes a deleted job from the dependencies of its parent. A parent that has no dependencies left becomes the next
-- job, even if others have a higher priority, as in Node; with `together` (many jobs are deleted at once), a parent of
-- the same queue is deleted, too, and leaves its own parent; a relay is marked to do the same to its dependents.
-- Returns whether the job was among the dependencies, and how many parents were deleted. It is a loop, as a sequence
-- can have more jobs than Lua's stack.
local function leave_parent(key, arg, job_key, parent_key, together)
  local was_child, deleted = false, 0
  while parent_key and call('EXISTS', parent_key) == 1
    and call('SREM', parent_key .. ':dependencies', job_key) == 1 do
    was_child = true
    local base, parent_id = split_job_key(arg, parent_key)
    local keys = keys_at(key, arg, base)
    if call('SCARD', parent_key .. ':dependencies') > 0 or call('ZREM', keys.waiting_children, parent_id) == 0 then
      break
    end
    if not (together and base == arg.base) then
      enqueue_job(keys, arg.bullmq_version, parent_id, 0, 'RPUSH')
      if together and base == key.relays .. ':' then
        call('HSET', parent_key, 'removed', '1')
      elseif not together then
        emit(keys, arg, 'waiting', 'jobId', parent_id, 'prev', 'waiting-children')
      end
      break
    end
    local fields = call('HMGET', parent_key, 'parentKey', 'deid')
    free_deduplication(base, parent_id, fields[2])
    unlink_job(parent_key)
    deleted = deleted + 1
    job_key, parent_key = parent_key, fields[1]
  end
  return was_child, deleted
end

-- Moves jobs that have left `active` to `waiting-children`. Returns the ones without unfinished children, which run
-- again.
local function wait_for_children(key, arg, ids, mine, now)
  local ready = {}
  for _, id in ipairs(ids) do
    if mine[id] and call('EXISTS', arg.base .. id .. ':dependencies') == 1 then
      call('ZADD', key.waiting_children, string.format('%.0f', now), id)
      emit(key, arg, 'waiting-children', 'jobId', id, 'prev', 'active')
    elseif mine[id] then
      ready[#ready + 1] = id
    end
  end
  return ready
end

-- Stores the result of a completed child in its parent; releases the parent after the last child.
local function child_completed(key, arg, job_key, parent_key, value, now)
  local children = parent_key .. ':dependencies'
  if call('SREM', children, job_key) == 0 then
    return
  end
  call('HSET', parent_key .. ':processed', job_key, value)
  if call('SCARD', children) == 0 and call('EXISTS', parent_key) == 1 then
    local keys, parent_id = parent_of(key, arg, parent_key)
    release_parent(keys, arg, parent_key, parent_id, keys.waiting_children, now)
  end
end

-- A parent that fails because of its child gets a deferred failure, with which the next worker fails it.
local function fail_parent(keys, arg, job_key, parent_key, parent_id, now)
  if call('EXISTS', parent_key) == 0 then
    return
  end
  local waits = call('ZSCORE', keys.waiting_children, parent_id)
  local delayed = not waits and call('ZSCORE', keys.delayed, parent_id)
  if delayed then
    call('HSET', parent_key, 'delay', 0)
  end
  if waits or delayed or not call('ZSCORE', keys.failed, parent_id) then
    call('HSET', parent_key, 'defa', 'child ' .. job_key .. ' failed')
  end
  if waits or delayed then
    release_parent(keys, arg, parent_key, parent_id, waits and keys.waiting_children or keys.delayed, now)
  end
end

-- Applies the final failure of a child to its parent. `rules`: the child's field `parent`, which says what to do.
local function child_failed(key, arg, job_key, parent_key, rules, reason, now)
  local children = parent_key .. ':dependencies'
  if not (rules.fpof or rules.cpof or rules.idof or rules.rdof) or call('SREM', children, job_key) == 0 then
    return
  end
  local keys, parent_id = parent_of(key, arg, parent_key)
  if rules.fpof then
    call('ZADD', parent_key .. ':unsuccessful', now, job_key)
    fail_parent(keys, arg, job_key, parent_key, parent_id, now)
    return
  end
  if rules.cpof or rules.idof then
    call('HSET', parent_key .. ':failed', job_key, reason)
  end
  if (rules.cpof or call('SCARD', children) == 0) and call('EXISTS', parent_key) == 1 then
    release_parent(keys, arg, parent_key, parent_id, keys.waiting_children, now)
  end
end

local family = {child_completed = child_completed, child_failed = child_failed}

-- The groups of flows with what the functions below need.
local function places_of(key, arg, flows)
  local places = {}
  for i, group in ipairs(flows.groups) do
    -- All children are added before a parent is released.
    group.jobs.deferred = true
    -- Parents in the flow come first. Ids that nobody has chosen are new.
    group.jobs.parents_exist, group.jobs.new_ids = not group.is_root, #group.checked == 0
    local keys, args = keys_at(key, arg, group.base), args_at(arg, group.base, group.queue)
    local parent_at, _, _, refusal = chunk_parents(keys, args, group.jobs)
    places[i] = {keys = keys, args = args, group = group, parent_at = parent_at, refusal = refusal}
  end
  return places
end

-- Calls `visit(place, row, parent)` for the children of flows.
local function each_child(places, visit)
  for _, place in ipairs(places) do
    if place.parent_at then
      for row = 1, place.group.jobs.n do
        local parent = place.parent_at(row)
        if parent then
          visit(place, row, parent)
        end
      end
    end
  end
end

local function parents_by_child(places)
  local parents = {}
  each_child(places, function(place, row, parent)
    parents[place.args.base .. listed(place.group.jobs, 'job_id')[row]] = parent.key
  end)
  return parents
end

-- The flows that an earlier attempt of the same task has added: a job exists that has an id of its own.
local function flows_added_before(places)
  local added = {}
  for _, place in ipairs(places) do
    local jobs = place.group.jobs
    local own, ids = listed(jobs, 'own_id'), listed(jobs, 'job_id')
    for row, flow in ipairs(place.group.flow) do
      if own[row] and not added[flow] and call('EXISTS', place.args.base .. ids[row]) == 1 then
        added[flow] = true
      end
    end
  end
  return added
end

-- Finds flows that can't be added whole: a parent outside the flow is missing, a job exists and can't become a child,
-- or two flows have a job of the same id. Only jobs whose ids were chosen by the user, and roots with parents, are
-- checked. Those that were `added_before` are left out. Returns {flow -> {reason, order of the job}} and whether there
-- is any.
local function refused_flows(places, added_before)
  local refused, is_any, takers, new_parents = {}, false, {}, nil

  local function refuse(flow, reason, order)
    is_any = true
    refused[flow] = refused[flow] or {reason, order}
  end

  local function check(place, row)
    local group = place.group
    local flow, order = group.flow[row], group.order[row]
    local parent = place.parent_at and place.parent_at(row)
    local job_key = place.args.base .. listed(group.jobs, 'job_id')[row]
    local taker = takers[job_key] or {flow = flow, parent_key = parent and parent.key}
    takers[job_key] = parent and taker
    if parent and taker.parent_key ~= parent.key then
      refuse(math.max(flow, taker.flow), 'other parent', order)
    elseif parent and group.is_root and not group.jobs.parent_optional and call('EXISTS', parent.key) == 0 then
      refuse(flow, 'missing', order)
    elseif parent and call('EXISTS', job_key) == 1 then
      new_parents = new_parents or parents_by_child(places)
      local reason = place.refusal(parent, job_key, new_parents)
      if reason then
        refuse(flow, reason, order)
      end
    end
  end

  for _, place in ipairs(places) do
    for _, row in ipairs(place.group.checked) do
      if not added_before[place.group.flow[row]] then
        check(place, row)
      end
    end
  end
  return refused, is_any
end

-- Releases parents that have no child to wait for, as all of their children had completed before.
local function release_parents(key, arg, places, now)
  local parents, seen = {}, {}
  each_child(places, function(place, row, parent)
    if not seen[parent.key] then
      seen[parent.key] = true
      parents[#parents + 1] = {order = place.group.order[row], id = parent.id, key = parent.key}
    end
  end)
  table.sort(parents, function(one, other)
    return one.order < other.order
  end)
  for _, parent in ipairs(parents) do
    if call('SCARD', parent.key .. ':dependencies') == 0 and call('EXISTS', parent.key) == 1 then
      local keys = parent_of(key, arg, parent.key)
      release_parent(keys, arg, parent.key, parent.id, keys.waiting_children, now)
    end
  end
end

-- Adds flows, each of them whole or not at all. `flows`: {n = number of jobs, groups}; a group is the jobs of one queue
-- at one distance from the roots, parents come before their children: {base, queue, is_root, jobs = chunk, flow and
-- order = number of the flow and of the job, checked = rows that can be refused}.
-- Returns {next, added, duplicates, deduplicated, ids = {order, id of the job that is kept} of deduplicated jobs,
-- rejected = {order, reason} of jobs that were not added, by_list = key for the kept ids of a queue -> {ids} of its
-- jobs}; it is empty unless `keeps_all`.
local function add_flows(key, arg, flows, _, now, keeps_all)
  local places = places_of(key, arg, flows)
  local added_before = flows_added_before(places)
  local refused, is_any = refused_flows(places, added_before)
  local left_out = 0
  local total = {next = flows.n + 1, added = 0, duplicates = 0, deduplicated = 0, ids = {}, rejected = {}, by_list = {}}
  for _, place in ipairs(places) do
    local group, chunk, rows = place.group, place.group.jobs, nil
    if is_any or next(added_before) then
      rows = {}
      for row, flow in ipairs(group.flow) do
        if added_before[flow] then
          left_out = left_out + 1
        elseif refused[flow] then
          total.rejected[#total.rejected + 1] = {refused[flow][2], refused[flow][1]}
        else
          rows[#rows + 1] = row
        end
      end
      chunk = only_rows(chunk, rows)
    end
    if chunk.n > 0 then
      local result = add_jobs(place.keys, place.args, chunk, 1, now)
      total.added = total.added + result.added
      total.duplicates = total.duplicates + result.duplicates
      if keeps_all then
        local kept = total.by_list[place.keys.kept_ids] or {ids = {}}
        for _, id in ipairs(result.ids) do
          kept.ids[#kept.ids + 1] = id
        end
        total.by_list[place.keys.kept_ids] = kept
      end
      if result.deduplicated > 0 then
        total.deduplicated = total.deduplicated + result.deduplicated
        local given = listed(chunk, 'job_id')
        for row, id in ipairs(result.ids) do
          if id ~= given[row] then
            total.ids[#total.ids + 1] = {group.order[rows and rows[row] or row], id}
          end
        end
      end
    end
  end
  if total.duplicates > 0 then
    release_parents(key, arg, places, now)
  end
  total.duplicates = total.duplicates + left_out
  return total
end
