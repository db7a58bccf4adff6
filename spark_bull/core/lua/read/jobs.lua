-- Reads jobs by their ids, with their states as far as they are ZSETs or SETs: other jobs are in a list, which
-- `read/find` searches, or in no state. A call reads about `most_bytes` at most.
-- @keys states...
-- @args fields...
-- @returns msgpack of {processed = number of ids, ids = of the jobs that exist, values = job after job, states = index
-- in `states` of each (0: none), scores = of each (false: none)}
-- @include lib: jobs(job_fields)

local ids, kinds = cmsgpack.unpack(arg.ids), cmsgpack.unpack(arg.kinds)

local function state_of(job_id)
  for number, kind in ipairs(kinds) do
    if kind == 'zset' then
      local score = call('ZSCORE', key.states[number], job_id)
      if score then
        return number, score
      end
    elseif call('SISMEMBER', key.states[number], job_id) == 1 then
      return number, false
    end
  end
  return 0, false
end

local jobs, unread = job_fields(arg.base, ids, 1, arg.fields, #ids, tonumber(arg.most_bytes))
local numbers, scores = {}, {}
for i, job_id in ipairs(jobs.ids) do
  numbers[i], scores[i] = state_of(job_id)
end
return cmsgpack.pack({
  processed = unread - 1,
  ids = jobs.ids,
  values = jobs.values,
  states = numbers,
  scores = scores,
})
