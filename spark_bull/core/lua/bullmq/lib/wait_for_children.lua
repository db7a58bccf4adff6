-- @include bullmq/lib: emit

-- Moves jobs that have left `active` to `waiting-children`. Returns the ones without unfinished children, which run
-- again.
local function wait_for_children(key, arg, ids, mine, now)
  local call, ready = redis.call, {}
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
