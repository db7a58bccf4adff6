-- The ZSET of the delayed jobs.

-- Adds an existing job to the delayed ones, due at `eta` ms, and publishes that time. Returns its score. Jobs of one
-- millisecond are ordered by the last bits of their ids; an id that is not a number counts as 0.
local function delay_job(key, job_id, eta)
  local number = tonumber(job_id)
  local score = eta * 4096 + (number and number % 1 == 0 and bit.band(number % 4096, 0xfff) or 0)
  local text = string.format('%.0f', score)
  redis.call('ZADD', key.delayed, text, job_id)
  redis.call('PUBLISH', key.delayed, score / 4096)
  return text
end

-- Delays the settled jobs that a worker delays: {id, until (ms)}.
local function delay_jobs(settling)
  for _, job in ipairs(settling.outcomes.delayed) do
    if settling.mine[job.id] then
      delay_job(settling.key, job.id, math.max(job['until'], settling.now))
    end
  end
end
