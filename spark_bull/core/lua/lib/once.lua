-- What a call does once, also when it is sent again.

-- Runs `act` once per call of a sender: `receipt` keeps the last reply, so that a call that is sent again after a lost
-- reply gets the same one and changes nothing. `act` returns the reply, and true when it need not be kept as a
-- repetition is harmless.
local function once(receipt, call_id, ttl_ms, act)
  local last = call('GET', receipt)
  if last then
    local kept = cmsgpack.unpack(last)
    if kept[1] == call_id then
      return kept[2]
    end
  end
  local answer, unchanged = act()
  if unchanged then
    return answer
  end
  call('SET', receipt, cmsgpack.pack({call_id, answer}), 'PX', ttl_ms)
  return answer
end

-- Calls `advance(job)` for each of the packed jobs, unless this call was answered before; returns the results.
local function advance_once(key, arg, advance)
  return once(key.receipt, arg.call, arg.ttl_ms, function()
    local made = {}
    for i, job in ipairs(cmsgpack.unpack(arg.jobs)) do
      made[i] = advance(job)
    end
    return made
  end)
end

-- The stalled check in slices. A job has stalled if it is active, was active at the previous check, and has no lock.
-- First the jobs that the previous check marked in `stalled` are examined, slice by slice; then the active jobs are
-- marked for the next check. The process that sets `stalled_check` does the whole check, others nothing until it
-- expires. Unlike in Node, a check of a queue without active jobs writes nothing, so that it does not create the keys
-- of a queue that does not exist. `rescue(ids)` returns ids of jobs that wait again and ids of jobs that failed.
-- Returns {next position or '', both}.
local function rescue_slices(key, arg, now, rescue)
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
