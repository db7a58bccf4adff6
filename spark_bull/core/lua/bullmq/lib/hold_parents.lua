-- @include lib: args_at keys_at
-- @include bullmq/lib: allow_wrongtype chunk_parents parent_of release_parent

-- Stands for the follow-ups that are still to be added, in the children of a parent.
local FOLLOW_UPS = 'spark:follow-ups'

-- The parents that follow-ups will have, each once.
local function parents_of(key, arg, follow_ups)
  local parents, seen = {}, {}
  for _, group in ipairs(follow_ups) do
    local parent_at = chunk_parents(keys_at(key, arg, group.base), args_at(arg, group.base, group.queue), group.jobs)
    for row = 1, parent_at and group.jobs.n or 0 do
      local parent = parent_at(row)
      if parent and not seen[parent.key] then
        seen[parent.key] = true
        local keys, id = parent_of(key, arg, parent.key)
        parents[#parents + 1] = {key = parent.key, id = id, keys = keys}
      end
    end
  end
  return parents
end

local function hold(parent)
  if redis.call('ZSCORE', parent.keys.waiting_children, parent.id) then
    redis.call('SADD', parent.key .. ':dependencies', FOLLOW_UPS)
  end
end

-- Keeps the parents of follow-ups waiting while jobs are settled, which can be their last children. Returns a function
-- that is called with the time after the follow-ups were added.
local function hold_parents(key, arg, follow_ups)
  local parents = parents_of(key, arg, follow_ups)
  for _, parent in ipairs(parents) do
    allow_wrongtype(hold, parent)
  end

  local function release(parent, now)
    local children = parent.key .. ':dependencies'
    if redis.call('SREM', children, FOLLOW_UPS) == 1 and redis.call('SCARD', children) == 0 then
      release_parent(parent.keys, arg, parent.key, parent.id, parent.keys.waiting_children, now)
    end
  end

  return function(now)
    for _, parent in ipairs(parents) do
      allow_wrongtype(release, parent, now)
    end
  end
end
