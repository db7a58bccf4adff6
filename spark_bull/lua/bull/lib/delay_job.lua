-- Puts a job that has run among the delayed ones, due at `eta` ms, and tells those who promote. Jobs of one millisecond are
-- ordered by the last bits of their id; a text that is no number counts as 0.
local function delay_job(key, job_id, eta)
  local number = tonumber(job_id)
  local score = eta * 4096 + (number and number % 1 == 0 and bit.band(number % 4096, 0xfff) or 0)
  redis.call('ZADD', key.delayed, string.format('%.0f', score), job_id)
  redis.call('PUBLISH', key.delayed, score / 4096)
end
