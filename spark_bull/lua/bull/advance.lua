-- Adds the next job of each repeated job that is given, unless its schedule has been removed.
-- @keys receipt repeats id meta_paused wait paused delayed priority
-- @args base token call ttl_ms jobs
-- @returns for each job 'next', 'duplicated' (it exists) or 'none' (no schedule)
-- @include add_bull
-- @include once
-- @include time_ms

local call, now = redis.call, time_ms()

local function advance(job)
  if not call('ZSCORE', key.repeats, job.key) then
    return 'none'
  end
  call('ZADD', key.repeats, job.next, job.key)
  local made = add_bull(key, arg.base, {
    n = 1,
    name = {job.name},
    data = {job.data},
    opts = {job.opts},
    jobId = {job.id},
    runAt = {job.next},
    priority = {job.priority},
    lifo = {job.lifo},
    marked = true,
  }, 1, now, arg)
  return made.added == 1 and 'next' or 'duplicated'
end

return once(key.receipt, arg.call, arg.ttl_ms, function()
  local made = {}
  for i, job in ipairs(cmsgpack.unpack(arg.jobs)) do
    made[i] = advance(job)
  end
  return made
end)
