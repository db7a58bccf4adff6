-- Checks that the query owns the ledger, and that no entry before `known_end` is missing, as after a fail-over to a
-- replica that lagged: other finishes would take their positions. Returns the reply of the script if not. The id counter
-- of a queue shrinks only when the queue is deleted, and jobs may then have been missed: that is refused unless
-- `accept_recreated`.
local function check_owner(key, arg, on_recreated)
  local call = redis.call
  local track = call('HMGET', key.track, 'owner', 'id', 'base')
  if not track[1] then
    return {'lost'}
  end
  if track[1] ~= arg.owner then
    return {'taken', track[1]}
  end
  local ends = tonumber(track[3]) + call('LLEN', key.ledger)
  if ends < tonumber(arg.known_end) then
    return {'behind', ends}
  end
  local was, is = tonumber(track[2]), tonumber(call('GET', key.id) or 0)
  if was > is then
    if arg.accept_recreated ~= '1' then
      return {'recreated', was, is}
    end
    on_recreated()
  end
  if was ~= is then
    call('HSET', key.track, 'id', is)
  end
end
