-- Ends calls that are pending with a reason, and removes their jobs, unless a worker has locked them: such a job runs
-- to its end, which changes nothing. `calls`: {ids of jobs, ids of their parents}.
-- @returns how many of the first calls are done; the others need the script again
-- @include lib: waiting(WALK_STEPS)
-- @include {dialect}/lib: remove(remove_call) settle_jobs(finished_state)

local has = finished_state.has
local ids, parent_ids = unpack(cmsgpack.unpack(arg.calls))
local steps = WALK_STEPS

for i, job_id in ipairs(ids) do
  local job_key, parent_key = arg.base .. job_id, arg.base .. parent_ids[i]
  -- A job that has ended may be a dependency that is not gathered yet.
  if call('SISMEMBER', parent_key .. ':dependencies', job_key) == 1 and not has(key.completed, job_id)
    and not has(key.failed, job_id) then
    if call('EXISTS', job_key .. ':lock') == 0 then
      steps = remove_call(key, arg, job_id, steps, i == 1)
      if steps < 0 and i > 1 then
        return i - 1
      end
      call('SREM', parent_key .. ':kept', job_key)
    end
    call('SREM', parent_key .. ':dependencies', job_key)
    call('HSET', parent_key .. ':failed', job_key, arg.reason)
  end
end
return #ids
