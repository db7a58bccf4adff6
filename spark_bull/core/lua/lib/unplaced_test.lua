-- @include lib: is_job

-- The commands that return whether a ZSET or SET has a member.
local MEMBER_OF = {zset = 'ZSCORE', set = 'SISMEMBER'}

-- Returns a function that tells whether a key is a job that none of those states has that are ZSETs or SETs, and that is
-- not recorded as damaged.
local function unplaced_test(key, arg)
  local call, sorted = redis.call, {}
  for _, state_key in ipairs(key.states) do
    local command = MEMBER_OF[call('TYPE', state_key).ok]
    if command then
      sorted[#sorted + 1] = {command, state_key}
    end
  end
  return function(job_id)
    if not is_job(arg.base, job_id, true) or call('HEXISTS', key.damaged, job_id) == 1 then
      return false
    end
    for _, state in ipairs(sorted) do
      local found = call(state[1], state[2], job_id)
      if found and found ~= 0 then
        return false
      end
    end
    return true
  end
end
