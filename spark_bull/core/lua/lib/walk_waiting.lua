-- The order in which waiting jobs are claimed.
-- @include lib: json(options_of) numbers(whole_number)

-- Whether all of these texts are ASCII. To search each of them takes three times as long.
local function are_ascii(texts)
  return string.find(table.concat(texts), '^[%z\1-\127]*$') ~= nil
end

-- The characters of UTF-8 of several bytes.
local WIDE = {
  '[\194-\223][\128-\191]',
  '\224[\160-\191][\128-\191]',
  '[\225-\236\238\239][\128-\191][\128-\191]',
  '\237[\128-\159][\128-\191]',
  '\240[\144-\191][\128-\191][\128-\191]',
  '[\241-\243][\128-\191][\128-\191][\128-\191]',
  '\244[\128-\143][\128-\191][\128-\191]',
}

-- Whether a text is UTF-8.
local function is_utf8(text)
  local left = text
  for i = 1, string.find(text, '[\128-\255]') and #WIDE or 0 do
    left = string.gsub(left, WIDE[i], ' ')
  end
  return not string.find(left, '[\128-\255]')
end

local GROUP_PASS = 100
local MAX_PASSES = 20

-- Claims up to `count` of the waiting jobs: `take(count)` processes the next ones while `goes_on()`, and returns
-- whether it has read the last one. Only limits of groups, which hold jobs back, need several passes. Returns the same.
local function take_passes(groups, count, take, goes_on)
  if not groups then
    return take(count)
  end
  local passes, is_over = 0, false
  while not is_over and passes < MAX_PASSES and goes_on() do
    is_over, passes = take(math.max(count, GROUP_PASS)), passes + 1
  end
  return is_over
end

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

-- Returns a table of the durations of the locks of jobs, ms, by their options, else `default`.
-- Options without one are not parsed, and equal ones are searched once.
local function lock_durations(default)
  return setmetatable({}, {
    __index = function(known, opts)
      local duration = default
      if string.find(opts, '"lockMs":', 1, true) then
        local given = whole_number(options_of(opts).lockMs)
        duration = given > 0 and string.format('%.0f', given) or default
      end
      known[opts] = duration
      return duration
    end,
  })
end
