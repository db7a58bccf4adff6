-- Runs `act` once per call of a sender: `receipt` keeps the last reply, so that a call that is sent again after a lost
-- reply gets the same one and changes nothing. `act` returns the reply, and true when it need not be kept as a
-- repetition is harmless.
local function once(receipt, call_id, ttl_ms, act)
  local last = redis.call('GET', receipt)
  if last then
    local kept = cmsgpack.unpack(last)
    if kept[1] == call_id then
      return kept[2]
    end
  end
  local answer, unchanged = act()
  if unchanged then
    return answer
  end
  redis.call('SET', receipt, cmsgpack.pack({call_id, answer}), 'PX', ttl_ms)
  return answer
end
