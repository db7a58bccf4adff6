-- Delayed jobs that wait from now on.
-- @include lib: expiry(next_expiry_of) numbers(time_ms) once

-- Notes that a job is delayed no more. One that is gone must not get a field.
local function clear_delay(job_key)
  if redis.call('EXISTS', job_key) == 1 then
    redis.pcall('HSET', job_key, 'delay', '0')
  end
end

-- When the first delayed job is due, ms since 1970; false when there is none, or its score is no valid time.
-- (Redis formats numbers among arguments with 17 digits, which takes longer than texts.)
local function next_due_of(delayed)
  local score = tonumber(redis.call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2])
  return score and score < 9007199254740992 and math.max(0, math.floor(score / 4096)) or false
end

-- Promotes delayed jobs that are due, once per call of a sender. Promotes none while jobs have expired and the script
-- `expire` has not run yet (`after_expiry`), as it would move some of them. `promote(now)` returns when the next one is due, ms, or false, and how many it has promoted.
-- Returns {number of promoted jobs, when the next one is due or expires, ms, or '', now in ms}.
local function promote_due_once(key, arg, promote)
  local now = time_ms()
  return once(key.receipt, arg.call, arg.ttl_ms, function()
    local next_due, moved, next_expiry = false, 0, next_expiry_of(key.expiry)
    if arg.after_expiry == '1' or not next_expiry or next_expiry > now then
      next_due, moved = promote(now)
    end
    if next_expiry then
      next_due = math.min(next_due or math.huge, next_expiry)
    end
    return {moved, next_due and string.format('%.0f', next_due) or '', string.format('%.0f', now)}, moved == 0
  end)
end
