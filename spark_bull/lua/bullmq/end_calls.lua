-- Ends calls that are pending with a reason, and removes their jobs, unless a worker has locked them: such a job runs
-- to its end, which changes nothing. `calls`: {ids of jobs, ids of their parents}.
-- @keys completed delayed failed prioritized waiting_children
-- @returns how many of the first calls are done; the others need the script again
-- @include bullmq/lib: remove_from_state sorted_state
-- @include lib: job_row search_steps walk_steps

local call = redis.call
local ids, parent_ids = unpack(cmsgpack.unpack(arg.calls))
local steps = WALK_STEPS

-- Returns whether the budget of the script sufficed.
local function remove(job_id, job_key, is_first)
  local state = sorted_state(key, job_id)
  if state == 'unknown' then
    steps = steps - search_steps({key.wait, key.paused, key.active}, job_id)
  end
  if steps < 0 and not is_first then
    return false
  end
  local fields = job_row(job_key, 'deid') or {}
  remove_from_state({key = job_key, id = job_id, base = arg.base, keys = key, state = state}, fields[1])
  return true
end

for i, job_id in ipairs(ids) do
  local job_key, parent_key = arg.base .. job_id, arg.base .. parent_ids[i]
  if call('SISMEMBER', parent_key .. ':dependencies', job_key) == 1 then
    if call('EXISTS', job_key .. ':lock') == 0 and not remove(job_id, job_key, i == 1) then
      return i - 1
    end
    call('SREM', parent_key .. ':dependencies', job_key)
    call('HSET', parent_key .. ':failed', job_key, arg.reason)
  end
end
return #ids
