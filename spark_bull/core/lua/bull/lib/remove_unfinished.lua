-- @include bull/lib: remove_call
-- @include {dialect}/lib: finished_state

-- As in bullmq/lib, for the calls of a parent.
local function remove_unfinished(key, arg, parent_key, position, size, share)
  local call, has, removed = redis.call, finished_state.has, 0
  local scanned = call('SSCAN', parent_key .. ':dependencies', position, 'COUNT', size)
  for _, job_key in ipairs(scanned[2]) do
    local job_id = string.sub(job_key, #arg.base + 1)
    local is_call = string.sub(job_id, 1, 6) ~= 'spark:'
    if is_call and call('EXISTS', job_key .. ':lock') == 0 and not has(key.completed, job_id)
      and not has(key.failed, job_id) then
      share.steps = remove_call(key, arg, job_id, share.steps, removed == 0)
      if share.steps < 0 and removed > 0 then
        return position, removed
      end
      call('SREM', parent_key .. ':dependencies', job_key)
      removed = removed + 1
    end
  end
  return scanned[1] == '0' and '' or scanned[1], removed
end
