-- @include lib: count_up
-- @include bull/lib: publish waiting_list
-- @include {dialect}/lib: unrun_failures

-- Returns a function that lets a job that has left `active` wait again, as the next one. If it has stalled once more
-- (`counts`), more than `max_stalled` times now, it fails. Returns whether it waits.
local function stalled_requeuer(key, arg, now)
  local call, fail = redis.call, unrun_failures(key, arg, now)
  return function(id, counts)
    local stalled = counts and count_up(arg.base .. id, 'stalledCounter')
    if stalled and stalled > tonumber(arg.max_stalled) then
      fail(id, 'job stalled more than allowable limit', 'job stalled more than maxStalledCount')
      return false
    end
    call('RPUSH', waiting_list(key), id)
    publish(arg, 'stalled', key.stalled .. '@', id)
    return true
  end
end
