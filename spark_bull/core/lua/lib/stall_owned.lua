-- @include lib: counts_as_stall drop_missing group_places release_owned time_ms

-- Returns jobs whose lock holds `lock_token` to the queue, as their process ends while they run; the first one becomes
-- the next one. `requeue(id, counts)` returns whether the job waits again, or has failed; `counts`: whether it has
-- stalled once more. Returns the ids of both.
local function stall_owned(key, arg, requeue)
  local now, since = time_ms(), tonumber(arg.since)
  local mine, lost, left = release_owned(key, arg.base, {token = arg.lock_token}, arg.ids, {})
  drop_missing(arg.base, arg.ids, mine, lost)
  local back, failed = {}, {}
  for i = #arg.ids, 1, -1 do
    local id = arg.ids[i]
    if mine[id] then
      local list = requeue(id, counts_as_stall(key, id, since, now)) and back or failed
      list[#list + 1] = id
    end
  end
  group_places.keep(key, left, back)
  return {back, failed}
end
