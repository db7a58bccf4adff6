-- @include lib: result_entries

-- Removes up to `limit` entries before a position from a ledger of results. `unchanged(state, ids, times)` returns for
-- each job whether it has been in that state since that time. Returns {completed = ids, failed = ids} of those, and the
-- new base.
local function archived(key, arg, unchanged)
  local call = redis.call
  local base = tonumber(call('HGET', key.track, 'base') or '')
  local count = base and math.min(tonumber(arg.position) - base, tonumber(arg.limit)) or 0
  if count <= 0 then
    return {completed = {}, failed = {}}, base
  end
  local ids, times = {completed = {}, failed = {}}, {completed = {}, failed = {}}
  local entries = call('LRANGE', key.ledger, 0, count - 1)
  for _, entry in ipairs(entries) do
    local state, job_id, time = result_entries.parse(entry)
    local list = ids[state]
    list[#list + 1], times[state][#list + 1] = job_id, time
  end
  local found = {completed = {}, failed = {}}
  for state, list in pairs(ids) do
    local answers = #list > 0 and unchanged(state, list, times[state]) or {}
    for i, job_id in ipairs(list) do
      if answers[i] then
        found[state][#found[state] + 1] = job_id
      end
    end
  end
  call('LTRIM', key.ledger, #entries, -1)
  return found, call('HINCRBY', key.track, 'base', #entries)
end
