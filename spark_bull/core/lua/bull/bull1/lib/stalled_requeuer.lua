-- @include lib: count_up
-- @include bull/bull1/lib: announce unrun_failures
-- @include bull/lib: waiting_list

-- Returns a function that lets a job that has left `active` wait again, as the next one. If it was started before, and
-- has stalled once more (`counts`), more than `max_stalled` times now, it fails. Returns whether it waits.
local function stalled_requeuer(key, arg)
  local fail = unrun_failures(key, arg)
  return function(id, counts)
    local job_key = arg.base .. id
    local was_started = redis.pcall('HEXISTS', job_key, 'lockAcquired') == 1
    if was_started and counts and count_up(job_key, 'stalledCounter') > tonumber(arg.max_stalled) then
      fail(id, 'job stalled more than allowable limit')
      return false
    end
    redis.call('RPUSH', waiting_list(key), id)
    if was_started then
      announce(arg, 'stalled', id)
    end
    return true
  end
end
