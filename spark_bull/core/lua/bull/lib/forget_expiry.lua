-- Lets jobs that have started and wait again never expire: Bull counts no starts without a failure, so that they may
-- look as if they had not started, once they are claimed again.
local function forget_expiry(base, outcomes, mine)
  for _, job in ipairs(outcomes.delayed or {}) do
    if mine[job.id] then
      redis.pcall('HDEL', base .. job.id, 'expireAt')
    end
  end
  for _, id in ipairs(outcomes.returned or {}) do
    if mine[id] then
      redis.pcall('HDEL', base .. id, 'expireAt')
    end
  end
end
