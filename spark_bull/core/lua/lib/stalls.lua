-- Jobs whose worker has died, and how often that has happened.
-- @include lib: group_queue(group_places) numbers(time_ms) outcomes(drop_missing) release_owned

-- While this time passes, a job that moves from one ending process to the next has stalled once.
local ONE_STOP_MS = 30000

-- Whether a job has stalled once more, as its process ends. When several processes are stopped, one after the other,
-- the next one may have claimed the job again: this is no further stall if it was running already, `since` then, ms
-- since 1970. The ZSET `interrupted` has the jobs and when they stalled in this way.
local function counts_as_stall(key, id, since, now)
  local call = redis.call
  local last = tonumber(call('ZSCORE', key.interrupted, id) or nil)
  if last and since <= last and now < last + ONE_STOP_MS then
    return false
  end
  call('ZREMRANGEBYSCORE', key.interrupted, '-inf', string.format('%.0f', now - ONE_STOP_MS))
  call('ZADD', key.interrupted, string.format('%.0f', now), id)
  call('PEXPIRE', key.interrupted, ONE_STOP_MS)
  return true
end

-- Returns jobs whose lock holds `lock_token` to the queue, as their process ends while they run; the first one becomes
-- the next one. `requeue(id, counts)` returns whether the job waits again, or has failed; `counts`: whether it has
-- stalled once more. Returns the ids of both.
local function stall_owned(key, arg, requeue)
  local now, since = time_ms(), tonumber(arg.since)
  local mine, lost, left = release_owned(key, arg.base, {token = arg.lock_token}, arg.ids, {})
  drop_missing(arg.base, arg.ids, mine, lost)
  local back, failed = {}, {}
  for i = #arg.ids, 1, -1 do
    local id = arg.ids[i]
    if mine[id] then
      local list = requeue(id, counts_as_stall(key, id, since, now)) and back or failed
      list[#list + 1] = id
    end
  end
  group_places.keep(key, left, back)
  return {back, failed}
end

-- Adds 1 to a number in a job's hash; a text that is not a number counts as 0. Returns the number, nil when the key is
-- not a hash: one that is gone must not get a field.
local function count_up(job_key, field)
  if redis.call('TYPE', job_key).ok ~= 'hash' then
    return nil
  end
  local count = redis.pcall('HINCRBY', job_key, field, 1)
  if type(count) == 'number' then
    return count
  end
  redis.call('HSET', job_key, field, '1')
  return 1
end

-- Counts how often jobs were given back by their processors without a rate limit, in a field of
-- their hashes that others lack.
local function count_returns(base, returned, mine)
  for _, id in ipairs(returned) do
    if mine[id] then
      count_up(base .. id, 'returned')
    end
  end
end
