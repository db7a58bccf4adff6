-- Reads the ids of the next jobs of one state that belong to a slice. Lists and ZSETs are read from the end that jobs enter
-- at: jobs that leave at the other end do not shift positions, and jobs that enter can only make a job appear twice.
-- `position`: number of ids already read, and the last of them ('7:id'); for a SET, the cursor of SSCAN. A call examines
-- `window` ids.
-- @keys state
-- @args kind position window slice slices
-- @returns {position = next one, 1 if these are the last ids, ids, scores = those of a ZSET, places = those of the ids in a
-- list or ZSET, from 0}
-- @include lib/slice_of

local call = redis.call
local window, slice, slices = tonumber(arg.window), tonumber(arg.slice), tonumber(arg.slices)

-- Every `step`-th member is an id. Returns those of the slice, and their indexes.
local function of_slice(members, step)
  local ids, indexes = {}, {}
  for i = 1, #members, step do
    if slices == 1 or slice_of(members[i], slices) == slice then
      ids[#ids + 1], indexes[#indexes + 1] = members[i], i
    end
  end
  return ids, indexes
end

if arg.kind == 'set' then
  local scanned = call('SSCAN', key.state, arg.position, 'COUNT', window)
  return {scanned[1], scanned[1] == '0' and 1 or 0, of_slice(scanned[2], 1), {}, {}}
end

local behind, last_id = string.match(arg.position, '^(%d+):?(.*)$')
local first = tonumber(behind)

local function members_at(from, to)
  if arg.kind == 'zset' then
    return call('ZREVRANGE', key.state, from, to, 'WITHSCORES'), 2
  end
  return call('LRANGE', key.state, from, to), 1
end

if last_id ~= '' and members_at(first - 1, first - 1)[1] ~= last_id then
  -- Jobs have left or entered before this position: going back half a window repeats some jobs, but misses none.
  first = math.max(0, first - math.floor(window / 2))
end
local members, step = members_at(first, first + window - 1)
local ids, indexes = of_slice(members, step)
local scores, places = {}, {}
for i, index in ipairs(indexes) do
  places[i] = first + (index - 1) / step
  scores[i] = step == 2 and members[index + 1] or nil
end
local passed = #members / step
return {(first + passed) .. ':' .. (members[#members - step + 1] or ''), passed < window and 1 or 0, ids, scores, places}
