-- @include lib/once

-- The stalled check in slices: a job that is active, was active at the check before, and has no lock, has stalled. First
-- slices of `stalled`, those marked at the check before, are looked at; then slices of `active` are marked for the next
-- one. Whoever sets `stalled_check` does all of it, the others nothing until it expires. Unlike Node's, a check of a queue
-- in which nothing is active sets nothing: a queue that doesn't exist is not to come into being by it.
-- `rescue(ids)` returns ids that came back to wait and ids that failed. Returns {next position or '', both}.
local function rescue_slices(key, arg, now, rescue)
  local call = redis.call
  return once(key.receipt, arg.call, arg.ttl_ms, function()
    if arg.position == '' and (call('EXISTS', key.active, key.stalled) == 0
      or not call('SET', key.stalled_check, now, 'PX', arg.check_ms, 'NX')) then
      return {'', {}, {}}
    end
    local from = string.match(arg.position, '^mark:(%d+)$')
    if not from then
      local suspects, gone = call('SPOP', key.stalled, arg.limit), {}
      for _, id in ipairs(suspects) do
        if call('EXISTS', arg.base .. id .. ':lock') == 0 then
          gone[#gone + 1] = id
        end
      end
      local back, failed = rescue(gone)
      return {#suspects < tonumber(arg.limit) and 'mark:0' or 'look', back, failed}
    end
    local stop = from + tonumber(arg.limit) * 10
    local active = call('LRANGE', key.active, -stop, -from - 1)
    for first = 1, #active, 5000 do
      call('SADD', key.stalled, unpack(active, first, math.min(first + 4999, #active)))
    end
    return {#active < stop - from and '' or 'mark:' .. string.format('%.0f', stop), {}, {}}
  end)
end
