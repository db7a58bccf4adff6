-- @include lib: once

-- The stalled check in slices. A job has stalled if it is active, was active at the previous check, and has no lock.
-- First the jobs that the previous check marked in `stalled` are examined, slice by slice; then the active jobs are
-- marked for the next check. The process that sets `stalled_check` does the whole check, others nothing until it
-- expires. Unlike in Node, a check of a queue without active jobs writes nothing, so that it does not create the keys
-- of a queue that does not exist. `rescue(ids)` returns ids of jobs that wait again and ids of jobs that failed.
-- Returns {next position or '', both}.
local function rescue_slices(key, arg, now, rescue)
  local call = redis.call
  return once(key.receipt, arg.call, arg.ttl_ms, function()
    if arg.position == '' and (call('EXISTS', key.active, key.stalled) == 0
      or not call('SET', key.stalled_check, now, 'PX', arg.check_ms, 'NX')) then
      return {'', {}, {}}, true
    end
    local from = string.match(arg.position, '^mark:(%d+)$')
    if not from then
      local suspects, gone = call('SPOP', key.stalled, arg.limit), {}
      for _, id in ipairs(suspects) do
        if call('EXISTS', arg.base .. id .. ':lock') == 0 then
          gone[#gone + 1] = id
        end
      end
      local back, failed = rescue(gone)
      return {#suspects < tonumber(arg.limit) and 'mark:0' or 'check', back, failed}
    end
    local stop = from + tonumber(arg.limit) * 10
    local active = call('LRANGE', key.active, -stop, -from - 1)
    for first = 1, #active, 5000 do
      call('SADD', key.stalled, unpack(active, first, math.min(first + 4999, #active)))
    end
    return {#active < stop - from and '' or 'mark:' .. string.format('%.0f', stop), {}, {}}
  end)
end
