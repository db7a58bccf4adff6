-- @include lib: job_row keys_at search_steps
-- @include bullmq/lib: leave_parent max_depth(MAX_DEPTH) remove_from_state sorted_state split_job_key

-- Appends an unfinished child after its descendants to `found`, within the budget of one script: `share` {jobs, steps,
-- seen}. `size`: number of children that are scanned at once; `depth`: the level of the child, from 1. Returns whether
-- the budget sufficed; sets `share.is_deep` when the tree has too many levels.
local function gather_unfinished(key, arg, found, share, parent_key, job_key, size, depth)
  local call = redis.call
  local base, job_id = split_job_key(arg, job_key)
  local keys = keys_at(key, arg, base)
  share.steps = share.steps - 1
  -- A member that stands for jobs that a write has still to add is no job.
  local is_pending = string.sub(job_id, 1, 6) == 'spark:'
  if is_pending or share.seen[job_key] or call('EXISTS', job_key .. ':lock') == 1
    or call('ZSCORE', keys.failed, job_id) then
    return true
  end
  if depth > MAX_DEPTH then
    share.is_deep = true
    return false
  end
  share.seen[job_key] = true
  local cursor = call('EXISTS', job_key .. ':dependencies') == 1 and '0' or nil
  while cursor and share.steps >= 0 do
    local scanned = call('SSCAN', job_key .. ':dependencies', cursor, 'COUNT', size)
    for _, child_key in ipairs(scanned[2]) do
      if not gather_unfinished(key, arg, found, share, job_key, child_key, size, depth + 1) then
        return false
      end
    end
    cursor = scanned[1] ~= '0' and scanned[1] or nil
  end
  local state = sorted_state(keys, job_id)
  if state == 'unknown' then
    share.steps = share.steps - search_steps({keys.wait, keys.paused, keys.active}, job_id)
  end
  if share.jobs == 0 or (share.steps < 0 and #found > 0) then
    return false
  end
  share.jobs = share.jobs - 1
  found[#found + 1] = {key = job_key, parent_key = parent_key, id = job_id, base = base, keys = keys, state = state}
  return true
end

-- Removes those descendants of a job that have not ended and that no worker has locked, children before parents, of the
-- children that one SSCAN from `position` returns. Returns the next position, '' at the end, and the number of removed
-- jobs.
local function remove_unfinished(key, arg, job_key, position, size, share)
  local scanned = redis.call('SSCAN', job_key .. ':dependencies', position, 'COUNT', size)
  local found, all = {}, true
  for _, child_key in ipairs(scanned[2]) do
    all = all and gather_unfinished(key, arg, found, share, job_key, child_key, size, 1)
  end
  for _, job in ipairs(found) do
    leave_parent(key, arg, job.key, job.parent_key, false)
    local fields = job_row(job.key, 'deid') or {}
    remove_from_state(job, fields[1])
  end
  if not all and #found > 0 then
    return position, #found
  end
  return scanned[1] == '0' and '' or scanned[1], #found
end
