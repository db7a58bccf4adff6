-- Changes the next jobs of a registered write; see manage_jobs.
-- @keys touched...
-- @returns {state of the write, rows processed, id of a write that comes first}; see commit_once
-- @include lib: manage(manage_jobs) writes(commit_once)

local COUNTED_AS = {done = 'changed', missing = 'missing', locked = 'locked'}

-- Keeps the outcomes of changes, if the write says so: {ids, actions, outcomes} of each call.
local function keep_outcomes(chunk, from, outcomes)
  if #outcomes == 0 or call('HEXISTS', key.write, 'outcomes') == 0 then
    return
  end
  local ids, actions = {}, {}
  for i = 1, #outcomes do
    ids[i] = chunk.id[from + i - 1]
    actions[i] = type(chunk.action) == 'table' and chunk.action[from + i - 1] or chunk.action
  end
  call('RPUSH', key.outcomes, cmsgpack.pack({ids, actions, outcomes}))
  call('PEXPIRE', key.outcomes, arg.record_ttl_ms)
end

return commit_once(key, arg, function(_, _, chunk, from, now)
  local result, counts = manage_jobs(key, arg, chunk, from, now), {}
  for _, outcome in ipairs(result.outcomes) do
    local name = COUNTED_AS[outcome] or 'wrongState'
    counts[name] = (counts[name] or 0) + 1
  end
  keep_outcomes(chunk, from, result.outcomes)
  return {next = result.next, added = 0, duplicates = 0, counts = counts}
end)
