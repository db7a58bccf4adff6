-- @include lib: are_ascii is_utf8

-- Claims waiting jobs in their order. `take(id, is_sound, prioritized)` returns whether it has processed a job: it has
-- not if the call may not take another one, as `fits()` tells. `is_sound`: whether the id is UTF-8. With limits of
-- groups, jobs that can't start are delayed up to the next one that can, so that it is found at once, and the walk ends
-- there. Returns {goes_on(), take_of(ids, first, step, prioritized), take_waiting(count)}.
local function walk_waiting(key, groups, take, fits)
  local call, is_ready, walk = redis.call, false, {}

  function walk.goes_on()
    return not is_ready and fits() and (not groups or groups.may_hold())
  end

  -- Claims jobs of this list from index `first` on, up to the limits; returns how many it has processed.
  function walk.take_of(ids, first, step, prioritized)
    local count, is_ascii = walk.goes_on() and #ids or 0, are_ascii(ids)
    for processed = 0, count - 1 do
      local id = ids[first + step * processed]
      if groups and not groups.may_hold() then
        return processed
      end
      if not take(id, is_ascii or is_utf8(id), prioritized) then
        is_ready = true
        return processed
      end
    end
    return count
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
