-- @include allow_wrongtype
-- @include family_bullmq
-- @include keep_rule

-- Removes finished jobs from `state` until it holds what `keep` allows; see keep_rule.
local function keep_bullmq(key, arg, state, keep, now)
  keep_rule(state, keep, now, function(job_id)
    local job_key = arg.base .. job_id
    local parent_key = redis.pcall('HGET', job_key, 'parentKey')
    if type(parent_key) == 'string' then
      allow_wrongtype(leave_parent, key, arg, job_key, parent_key, false)
    end
    unlink_job(job_key)
  end)
end
