-- @include lib/commit_once

local COUNTED_AS = {done = 'changed', missing = 'missing', locked = 'locked'}

-- Keeps the outcomes of changes, if the write says so: {ids, actions, outcomes} of each call.
local function keep_outcomes(key, arg, chunk, from, outcomes)
  if #outcomes == 0 or redis.call('HEXISTS', key.write, 'outcomes') == 0 then
    return
  end
  local ids, actions = {}, {}
  for i = 1, #outcomes do
    ids[i] = chunk.id[from + i - 1]
    actions[i] = type(chunk.action) == 'table' and chunk.action[from + i - 1] or chunk.action
  end
  redis.call('RPUSH', key.outcomes, cmsgpack.pack({ids, actions, outcomes}))
  redis.call('PEXPIRE', key.outcomes, arg.record_ttl_ms)
end

-- Changes the next jobs of a registered write; see commit_once. `manage(chunk, from, now)` returns {next, outcomes}; see
-- manage_jobs.
local function commit_managed(key, arg, manage)
  return commit_once(key, arg, function(_, _, chunk, from, now)
    local result, counts = manage(chunk, from, now), {}
    for _, outcome in ipairs(result.outcomes) do
      local name = COUNTED_AS[outcome] or 'wrongState'
      counts[name] = (counts[name] or 0) + 1
    end
    keep_outcomes(key, arg, chunk, from, result.outcomes)
    return {next = result.next, added = 0, duplicates = 0, counts = counts}
  end)
end
