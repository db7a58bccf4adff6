-- Claims waiting jobs in their order. `take(id, prioritized)` returns whether it has processed a job, `fits()` whether
-- the call may take another one. With limits of groups, jobs that can't start are delayed up to the next one that can,
-- so that it is found at once, and the walk ends there. Returns {goes_on(), take_of(ids, first, step, prioritized),
-- take_waiting(count)}.
local function walk_waiting(key, groups, take, fits)
  local call, is_ready, walk = redis.call, false, {}

  function walk.goes_on()
    return not is_ready and fits() and (not groups or groups.may_hold())
  end

  -- Claims jobs of this list from index `first` on, up to the limits; returns how many it has processed.
  function walk.take_of(ids, first, step, prioritized)
    local processed, count = 0, #ids
    while processed < count and walk.goes_on() do
      is_ready = not take(ids[first + step * processed], prioritized)
      processed = processed + (is_ready and 0 or 1)
    end
    return processed
  end

  -- Claims up to `count` jobs of the list `wait`, the next one first; returns whether it has read the last one.
  function walk.take_waiting(count)
    local waiting = call('LRANGE', key.wait, -count, -1)
    local processed = walk.take_of(waiting, #waiting, -1, false)
    if processed > 0 then
      call('LTRIM', key.wait, 0, -processed - 1)
    end
    return #waiting < count
  end

  return walk
end
