-- @include bullmq/lib: delayed_score

-- Adds one of many jobs to the delayed ones, due at `eta` ms; `highest`: see delayed_score. Returns its score.
local function hold_job(key, highest, job_id, eta)
  local score = string.format('%.0f', delayed_score(key, highest, eta))
  redis.call('ZADD', key.delayed, score, job_id)
  redis.call('XADD', key.events, '*', 'event', 'delayed', 'jobId', job_id, 'delay', string.format('%.0f', eta))
  return score
end
