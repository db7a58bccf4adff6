-- Reads the next jobs of one state that belong to a slice. Lists and ZSETs are read from the end that jobs enter at:
-- jobs that leave at the other end do not shift positions, and jobs that enter can only make a job appear twice.
-- `position`: number of ids already read, and the last of them ('7:id'); for a SET, the cursor of SSCAN. A call
-- examines `window` ids, and reads at most `most` jobs or about `most_bytes`. Ids of a SET that were not read are
-- returned; the next call sends them back.
-- @keys state
-- @args base kind position window slice slices most most_bytes left_over fields...
-- @returns msgpack of {position = next one, done, ids, values = job after job, scores = those of a ZSET, left_over}
-- @include lib/job_fields
-- @include lib/slice_of

local call = redis.call
local window, slice, slices = tonumber(arg.window), tonumber(arg.slice), tonumber(arg.slices)
local most, most_bytes = tonumber(arg.most), tonumber(arg.most_bytes)

-- The ids of the slice, and their places among `members`.
local function of_slice(members)
  if slices == 1 then
    return members
  end
  local ids, places = {}, {}
  for place = 1, #members do
    local job_id = members[place]
    if slice_of(job_id, slices) == slice then
      ids[#ids + 1] = job_id
      places[#places + 1] = place
    end
  end
  return ids, places
end

if arg.kind == 'set' then
  local cursor, ids = arg.position, nil
  if arg.left_over ~= '' then
    ids = cmsgpack.unpack(arg.left_over)
  else
    local scanned = call('SSCAN', key.state, cursor, 'COUNT', window)
    cursor, ids = scanned[1], of_slice(scanned[2])
  end
  local jobs, unread = job_fields(arg.base, ids, 1, arg.fields, most, most_bytes)
  local left_over = {}
  for i = unread, #ids do
    left_over[#left_over + 1] = ids[i]
  end
  return cmsgpack.pack({
    position = cursor,
    done = cursor == '0' and #left_over == 0,
    ids = jobs.ids,
    values = jobs.values,
    scores = {},
    left_over = left_over,
  })
end

local range = arg.kind == 'zset' and 'ZREVRANGE' or 'LRANGE'
local behind, last_id = string.match(arg.position, '^(%d+):?(.*)$')
local first = tonumber(behind)
if last_id ~= '' and call(range, key.state, first - 1, first - 1)[1] ~= last_id then
  -- Jobs have left or entered before this position: going back half a window repeats some jobs, but misses none.
  first = math.max(0, first - math.floor(window / 2))
end
local members = call(range, key.state, first, first + window - 1)
local ids, places = of_slice(members)
local jobs, unread = job_fields(arg.base, ids, 1, arg.fields, most, most_bytes)
local passed = #members
if unread <= #ids then
  passed = places and places[unread - 1] or unread - 1
end
local scores = {}
if arg.kind == 'zset' then
  for i, job_id in ipairs(jobs.ids) do
    scores[i] = call('ZSCORE', key.state, job_id)
  end
end
return cmsgpack.pack({
  position = (first + passed) .. ':' .. (members[passed] or ''),
  done = unread > #ids and #members < window,
  ids = jobs.ids,
  values = jobs.values,
  scores = scores,
  left_over = {},
})
