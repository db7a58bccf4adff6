-- @include lib: job_row search_steps
-- @include bullmq/lib: remove_from_state sorted_state

-- Removes a job that has not ended, unless more list entries must be searched than `steps`; the first one in any case.
-- Returns what is left of `steps`; below 0, a job that is not the first one is still there.
local function remove_call(key, arg, job_id, steps, is_first)
  local job_key, state = arg.base .. job_id, sorted_state(key, job_id)
  if state == 'unknown' then
    steps = steps - search_steps({key.wait, key.paused, key.active}, job_id)
  end
  if steps >= 0 or is_first then
    local fields = job_row(job_key, 'deid') or {}
    remove_from_state({key = job_key, id = job_id, base = arg.base, keys = key, state = state}, fields[1])
  end
  return steps
end
