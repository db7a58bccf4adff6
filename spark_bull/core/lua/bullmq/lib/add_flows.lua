-- @include lib: chunk(listed only_rows) other_queues(args_at keys_at)
-- @include bullmq/lib: add_jobs chunk_parents parents(parent_of release_parent)

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
      if own[row] and not added[flow] and redis.call('EXISTS', place.args.base .. ids[row]) == 1 then
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
    elseif parent and group.is_root and not group.jobs.parent_optional and redis.call('EXISTS', parent.key) == 0 then
      refuse(flow, 'missing', order)
    elseif parent and redis.call('EXISTS', job_key) == 1 then
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
    if redis.call('SCARD', parent.key .. ':dependencies') == 0 and redis.call('EXISTS', parent.key) == 1 then
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
