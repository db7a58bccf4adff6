-- @include lib: lose_damaged

-- Runs step(...), which settles one job and writes to its hash first. Returns whether it succeeded: a job whose key is
-- no longer a hash is set aside instead, and added to `lost`.
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
