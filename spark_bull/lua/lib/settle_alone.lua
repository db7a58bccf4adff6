-- @include lib/set_aside

local function lose_damaged(key, job_id, kind, lost)
  set_aside(key, job_id, kind)
  lost[#lost + 1] = {job_id, 'damaged'}
end

-- Runs step(...), which settles one job and touches its hash first. Returns whether that went well: a job whose key is no
-- hash any more is set aside instead, and noted as lost.
local function settle_alone(key, base, job_id, lost, step, ...)
  local done, why = pcall(step, ...)
  if done then
    return true
  end
  local kind = redis.call('TYPE', base .. job_id).ok
  if kind == 'hash' or kind == 'none' then
    error(why, 0)
  end
  lose_damaged(key, job_id, kind, lost)
  return false
end
